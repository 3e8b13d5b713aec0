# Sourced by bin/bench: installs the peers of other languages that a bench asks for, once, into the
# user's cache, outside the tree.
peers="${XDG_CACHE_HOME:-$HOME/.cache}/engine-harness-bench"

# Sets $python, which has what requirements.txt names.
python_peers() {
  local wanted="$root/bench/peers/requirements.txt" folder="$peers/python"
  python="$folder/bin/python"
  cmp -s "$wanted" "$folder/requirements.txt" && return
  echo "bench: installing $(paste -sd ' ' "$wanted") into $folder" >&2
  python3 -m venv --clear "$folder" >&2
  "$python" -m pip install --quiet --disable-pip-version-check -r "$wanted" >&2
  cp "$wanted" "$folder/requirements.txt"
}

# Sets $npm, the folder that has what package.json names.
npm_peers() {
  local wanted="$root/bench/peers/package.json"
  npm="$peers/npm"
  cmp -s "$wanted" "$npm/installed.json" && return
  command -v npm >/dev/null || { echo "bench: npm is needed (on Debian: apt-get install npm)" >&2; exit 1; }
  echo "bench: installing the packages of bench/peers/package.json into $npm" >&2
  mkdir -p "$npm"
  cp "$wanted" "$npm/package.json"
  (cd "$npm" && npm install --silent --no-fund --no-audit) >&2
  cp "$wanted" "$npm/installed.json"
}

# Sets $vocabularies, the folder of tiktoken's files, made from the tables inside our library.
vocabularies() {
  vocabularies="$peers/vocabularies"
  mkdir -p "$vocabularies"
  cargo build --quiet --locked --release -p harness_bench --features prepare --bin prepare
  local name
  for name in cl100k_base o200k_base; do
    "$CARGO_TARGET_DIR/release/prepare" tokens "$name" |
      "$python" bench/peers/vocabularies.py >"$vocabularies/$name.tiktoken"
  done
}
