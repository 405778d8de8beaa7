#!/bin/sh
# Build qtide's Debian package for this machine's release: deploy/debian/build.sh [OUTPUT FOLDER]
#
# The package brings its own Python environment in /opt/qtide. It needs dpkg-deb and what
# deploy/environment.sh needs.
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

"$here/../install.sh" "$root" "$python"
doc=$root/usr/share/doc/qtide
mkdir -p "$doc" "$root/usr/share/lintian/overrides" "$root/DEBIAN"
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
