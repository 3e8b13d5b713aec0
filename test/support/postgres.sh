#!/bin/sh
# Runs a PostgreSQL server in a new folder DIR until a line is read or standard input ends, then
# removes the folder: so it goes whenever the one who started it goes, however that ends. Prints
# "ready" when the server takes connections. Trusts nobody without a password; the superuser is
# "owner", with the password "owner".
#
# usage: postgres.sh DIR PORT
set -eu
dir=$1
port=$2
# The newest server that is installed (Debian keeps them out of PATH).
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$bin" ] || bin=$(dirname "$(command -v postgres)")

mkdir -p "$dir"
# The server refuses to run as root.
as=
if [ "$(id -u)" -eq 0 ]; then
  as="setpriv --reuid=postgres --regid=postgres --clear-groups"
  chown postgres "$dir"
fi

cleanup() {
  [ -z "${server:-}" ] || { kill -INT "$server" 2>/dev/null; wait "$server"; }
  rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' TERM INT HUP

echo owner | $as tee "$dir/password" >/dev/null
$as "$bin/initdb" -D "$dir/data" -U owner -A scram-sha-256 --pwfile="$dir/password" \
  -E UTF8 --locale=C --no-sync >"$dir/initdb.log" 2>&1 || { cat "$dir/initdb.log" >&2; exit 1; }
$as "$bin/postgres" -D "$dir/data" -k "$dir" -h 127.0.0.1 -p "$port" \
  -c fsync=off >"$dir/server.log" 2>&1 </dev/null &
server=$!

until PGPASSWORD=owner "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"; do
  kill -0 "$server" 2>/dev/null || { cat "$dir/server.log" >&2; exit 1; }
  sleep 0.05
done
echo ready
read -r _ || true
