// The skeleton of the clustering aggregation in C++: expand, classical, minimise, quantum.
//
// Each rank clusters the points with some of the methods. The root then chooses clusters that do not
// overlap and fit best: a QUBO, for a QPU of a vQPU service if QTIDE_URL names one, else solved here.
//
//   aggregation ROUNDS [--static]
#include <qtide.h>

#include <algorithm>
#include <bitset>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

constexpr int POINTS = 240, METHODS = 3, CLUSTERS = 3, MOST = 3;
using Members = std::bitset<POINTS>;

struct Cluster {
    Members members;
    double quality = 0;
};

static double place(int point)  // three groups on a line, with a little noise
{
    return 10.0 * (point % 3) + (point * 37 % 101) / 60.0;
}

// k-means on a line; each method and round begins with other centres
static std::vector<Cluster> clustered(int method, int round)
{
    std::vector<double> centres(CLUSTERS);
    for (int k = 0; k < CLUSTERS; k++)
        centres[k] = place((7 * method + 11 * round + 3 * k * (method + 1)) % POINTS);
    std::vector<Cluster> found(CLUSTERS);
    for (int turn = 0; turn < 10; turn++) {
        found.assign(CLUSTERS, Cluster());
        std::vector<double> sums(CLUSTERS), spreads(CLUSTERS);
        for (int point = 0; point < POINTS; point++) {
            auto far = [&](int k) { return std::abs(place(point) - centres[k]); };
            int best = 0;
            for (int k = 1; k < CLUSTERS; k++)
                best = far(k) < far(best) ? k : best;
            found[best].members.set(point);
            sums[best] += place(point);
            spreads[best] += far(best);
        }
        for (int k = 0; k < CLUSTERS; k++) {
            double count = static_cast<double>(found[k].members.count());
            centres[k] = count > 0 ? sums[k] / count : centres[k];
            found[k].quality = count > 0 ? count / POINTS / (1 + spreads[k] / count) : 0;
        }
    }
    return found;
}

// Lines of two variables and a weight: choose good clusters, but none that overlap.
static std::string qubo(const std::vector<Cluster> &clusters)
{
    std::ostringstream lines;
    lines.precision(17);
    for (size_t i = 0; i < clusters.size(); i++) {
        lines << i << ' ' << i << ' ' << -clusters[i].quality << '\n';
        for (size_t j = i + 1; j < clusters.size(); j++)
            if ((clusters[i].members & clusters[j].members).any())
                lines << i << ' ' << j << ' ' << 2.0 << '\n';
    }
    return lines.str();
}

static double energy(const std::vector<Cluster> &clusters, unsigned chosen)
{
    double sum = 0;
    for (size_t i = 0; i < clusters.size(); i++)
        for (size_t j = i; j < clusters.size() && (chosen >> i & 1); j++)
            if (chosen >> j & 1)
                sum += i == j ? -clusters[i].quality
                              : 2.0 * (clusters[i].members & clusters[j].members).any();
    return sum;
}

static double best_energy(const std::vector<Cluster> &clusters)
{
    if (std::getenv("QTIDE_URL") != nullptr) {
        char task[QTIDE_TASK_ID], *text = nullptr;
        if (qtide_qpu_submit(nullptr, "qubo", qubo(clusters).c_str(), 0, task) != 0 ||
            qtide_qpu_fetch(task, 60, &text) != 1) {
            std::fprintf(stderr, "%s\n", qtide_message());
            return 0;
        }
        double found = std::atof(text);  // the best sample comes first
        std::free(text);
        return found;
    }
    double best = 0;
    for (unsigned chosen = 0; chosen < 1u << clusters.size(); chosen++)
        best = std::min(best, energy(clusters, chosen));
    return best;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? std::atoi(argv[1]) : 3, round = 0;
    bool fixed = argc > 2 && std::strcmp(argv[2], "--static") == 0;
    double best = 0;
    if (qtide_init(1, MOST, MOST) != 0)
        return 1;
    qtide_state("round", &round, sizeof round);
    qtide_state("best", &best, sizeof best);
    qtide_begin();
    while (round < rounds) {
        if (!fixed)
            qtide_expand(0, 0, 30);
        std::vector<Cluster> all(METHODS * CLUSTERS), mine(METHODS * CLUSTERS);
        for (int method = qtide_rank(); method < METHODS; method += qtide_size()) {
            std::vector<Cluster> found = clustered(method, round);
            std::copy(found.begin(), found.end(), mine.begin() + method * CLUSTERS);
        }
        // each method is one rank's, and all others have zeros: their union is everything
        MPI_Reduce(mine.data(), all.data(), static_cast<int>(sizeof(Cluster) * mine.size()), MPI_BYTE,
                   MPI_BOR, 0, qtide_comm());
        round++;
        if (!fixed)
            qtide_minimise();
        if (qtide_rank() == 0) {
            best = std::min(best, best_energy(all));
            std::printf("round %d: energy %.6f\n", round, best);
        }
    }
    return qtide_finalize() != 0;
}
