# What tests do to the broker's node besides talking to it: kill, stop, wipe, start.
# It runs in the node's environment, and so carries the mark by which the keeper finds whatever is left running.
set -eu

log=$1 ready=$2 server=$3 task=${4-}

fail() {
    echo "$1" >&2
    exit 1
}

# Whether the process is there, no zombie, and ours: numbers are given again.
lives() {
    grep -qszxF "CAMPANILE_SERVERS_FOLDER=$CAMPANILE_SERVERS_FOLDER" "/proc/$1/environ"
}

# Read once: an orderly end begins with the removal of the file.
node=$(cat "$RABBITMQ_PID_FILE" 2> /dev/null || true)

end_by() {
    lives "$node" || fail "the node is not up"
    kill -s "$1" "$node"
    rounds=0
    while lives "$node"; do
        [ $((rounds += 1)) -le 600 ] || fail "the node does not end within 30 s"
        sleep 0.05
    done
}

start() {
    ! lives "$node" || fail "the node is up already"
    from=$(($(wc -c < "$log") + 1))
    # A group of its own, so that it outlives whoever asked for it.
    setsid "$server" >> "$log" 2>&1 < /dev/null &
    rounds=0
    until tail -c "+$from" "$log" | grep -qF "$ready"; do
        # While a process becomes another program, it shows no environment; and our own children leave no zombies.
        kill -0 $! 2> /dev/null || fail "the node ended instead of coming up; $log says why"
        [ $((rounds += 1)) -le 600 ] || fail "the node is not up after 60 s; $log says why"
        sleep 0.1
    done
}

case $task in
kill) end_by KILL ;;
stop) end_by TERM ;;
wipe)
    ! lives "$node" || fail "a node that is up cannot lose its store"
    rm -rf "${RABBITMQ_MNESIA_BASE:?}"
    ;;
start) start ;;
*) fail "what to do with the node: kill, stop, wipe, or start" ;;
esac
