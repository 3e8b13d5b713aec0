# Sourced by the commands beside it: finds out what is missing and installs it, or says what to
# install. Does nothing, and takes milliseconds, when nothing is missing.

# Erlang must not guess the encoding of file names from the locale.
export ELIXIR_ERL_OPTIONS="${ELIXIR_ERL_OPTIONS:-+fnu}"

# need COMMAND PACKAGE...: what has to be installed where the command is not on PATH
need() {
  command -v "$1" >/dev/null 2>&1 || missing+=("${@:2}")
}

# need_file PATTERN PACKAGE: likewise where no file of that pattern is there
need_file() {
  compgen -G "$1" >/dev/null || missing+=("$2")
}

# Rust: what is on PATH if it is new enough. Debian's cargo-web and rustc-web are recent, but
# conflict with its cargo and rustc, so they are never installed over a toolchain that is there.
need_rust() {
  local wanted found
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
  if ! command -v cargo >/dev/null 2>&1; then
    missing+=(cargo-web rustc-web)
    return
  fi
  found=$(cargo --version | cut -d ' ' -f 2)
  if [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "$wanted" ]; then
    echo "harness: cargo $found is too old, Rust $wanted or newer is needed (on Debian: apt-get install cargo-web rustc-web)" >&2
    exit 1
  fi
}

# Debian's python3 comes without what makes virtual environments.
need_python_venv() {
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
}

install_missing() {
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "harness: please install what is missing (on Debian: apt-get install ${missing[*]})" >&2
    exit 1
  fi
  echo "harness: installing ${missing[*]}" >&2
  local install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
  # The package lists may be absent or older than the mirror.
  { DEBIAN_FRONTEND=noninteractive "${install[@]}" ||
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive "${install[@]}"; }; } >&2
}

# setup use|test|lint|bench
setup() {
  missing=()
  need_rust
  need cc gcc libc6-dev
  need mix elixir
  case $1 in
    test | lint)
      need_file "/usr/lib/erlang/lib/proper-*" erlang-proper
      need_file "/usr/lib/erlang/lib/jiffy-*" erlang-jiffy
      need_file "/usr/lib/erlang/lib/p1_pgsql-*" erlang-p1-pgsql
      need_file "/usr/lib/postgresql/*/bin/postgres" postgresql
      need git git
      ;;
  esac
  case $1 in
    lint) need rustfmt rustfmt-web ;;
    bench)
      need python3 python3
      need_python_venv
      need npm npm nodejs
      need fdfind fd-find
      need rg ripgrep
      ;;
  esac
  install_missing
}
