#!/bin/sh
# Build qtide's Debian package for this machine's release: deploy/debian/build.sh [OUTPUT FOLDER]
#
# The package brings its own Python environment in /opt/qtide, with the versions of constraints.txt, so
# that the system's Python packages do not matter. It needs Python's venv module, dpkg-deb and a package
# index.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
output=$(mkdir -p "${1:-.}" && cd "${1:-.}" && pwd)
python=${PYTHON:-/usr/bin/python3}
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$source/src/qtide/core/version.py")
[ -n "$version" ] || { echo "no version in src/qtide/core/version.py" >&2; exit 1; }
maintainer="The qtide project <qtide@example.invalid>"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

"$python" -m venv "$work/builder"
sed -n '/^uv==/,/[^\\]$/p' "$source/constraints.txt" > "$work/uv.txt"
"$work/builder/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$work/uv.txt"
uv=$work/builder/bin/uv
"$uv" venv --quiet --relocatable --python "$python" "$root/opt/qtide"
"$uv" pip install --quiet --python "$root/opt/qtide/bin/python" --constraint "$source/constraints.txt" \
    --link-mode copy "qtide[serve,gate,oidc,postgresql] @ file://$source"

install -D -m 644 "$source/docs/examples/qtide.service" "$root/usr/lib/systemd/system/qtide.service"
install -D -m 644 "$source/docs/examples/qtide.socket" "$root/usr/lib/systemd/system/qtide.socket"
install -D -m 644 "$here/../systemd/qtide.sysusers" "$root/usr/lib/sysusers.d/qtide.conf"
install -D -m 644 "$here/../systemd/qtide.tmpfiles" "$root/usr/lib/tmpfiles.d/qtide.conf"
install -D -m 640 "$source/docs/examples/serve.toml" "$root/etc/qtide/serve.toml"
install -D -m 644 "$here/../prometheus/qtide.rules.yml" "$root/usr/share/qtide/qtide.rules.yml"
install -D -m 644 "$here/../grafana/qtide.json" "$root/usr/share/qtide/qtide-grafana.json"
install -D -m 755 "$here/../waldur/sacct" "$root/usr/share/qtide/waldur-sacct"
doc=$root/usr/share/doc/qtide
mkdir -p "$doc" "$root/usr/share/lintian/overrides" "$root/usr/bin" "$root/DEBIAN"
cat > "$doc/copyright" <<END
Copyright 2026 the qtide project
License: Apache-2.0, see /usr/share/common-licenses/Apache-2.0
The licences of the Python packages in /opt/qtide are in their folders *.dist-info.
END
date=$(date -R -d "@${SOURCE_DATE_EPOCH:-$(stat -c %Y "$source/CHANGELOG.md")}")
gzip -9n > "$doc/changelog.gz" <<END
qtide ($version) stable; urgency=medium

  * See CHANGELOG.md in the source.

 -- $maintainer  $date
END
# what lintian says of a Python environment of its own, and of files that only the service may read
for tag in dir-or-file-in-opt unstripped-binary-or-object script-not-executable unusual-interpreter \
    shared-library-is-executable shared-library-lacks-prerequisites library-not-linked-against-libc \
    custom-library-search-path embedded-library executable-not-elf-or-script duplicate-font-file \
    shell-script-fails-syntax-check package-contains-vcs-control-file package-contains-timestamped-gzip \
    non-standard-file-perm non-standard-dir-perm maintainer-script-calls-systemctl; do
    echo "qtide: $tag *"
done > "$root/usr/share/lintian/overrides/qtide"
ln -s /opt/qtide/bin/qtide "$root/usr/bin/qtide"
echo /etc/qtide/serve.toml > "$root/DEBIAN/conffiles"
install -m 755 "$here/postinst" "$here/prerm" "$root/DEBIAN/"
minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
cat > "$root/DEBIAN/control" <<END
Package: qtide
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Section: science
Priority: optional
Depends: libc6, python3, python$minor, systemd | systemd-sysusers
Recommends: munge, slurm-client
Installed-Size: $(du -sk "$root" | cut -f1)
Description: virtual QPUs for the jobs of a cluster
 A service that shares quantum computers among many jobs: with Slurm's
 admission, fair queues, promises and accounts. Clients of IQM, Qiskit and
 dimod work unchanged.
END
dpkg-deb --root-owner-group -Zxz -z1 --build "$root" "$output"
echo "$output/qtide_${version}_$(dpkg --print-architecture).deb"
