#!/bin/sh
# Install the service for a package: deploy/install.sh ROOT PYTHON; the Debian and the RPM package share it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
examples=$here/../docs/examples
"$here/environment.sh" "$1/opt/qtide" "$2" serve,gate,oidc,postgresql
put() { install -D -m "$1" "$2" "$root/$3"; }
root=$1
put 644 "$examples/qtide.service" usr/lib/systemd/system/qtide.service
put 644 "$examples/qtide.socket" usr/lib/systemd/system/qtide.socket
put 644 "$here/systemd/qtide.sysusers" usr/lib/sysusers.d/qtide.conf
put 644 "$here/systemd/qtide.tmpfiles" usr/lib/tmpfiles.d/qtide.conf
put 640 "$examples/serve.toml" etc/qtide/serve.toml
put 644 "$here/prometheus/qtide.rules.yml" usr/share/qtide/qtide.rules.yml
put 644 "$here/grafana/qtide.json" usr/share/qtide/qtide-grafana.json
put 755 "$here/waldur/sacct" usr/share/qtide/waldur-sacct
mkdir -p "$root/usr/bin" "$root/usr/share/man/man1"
gzip -9n < "$here/qtide.1" > "$root/usr/share/man/man1/qtide.1.gz"
ln -s /opt/qtide/bin/qtide "$root/usr/bin/qtide"
