# Controls the broker's node for tests: kill, stop, wipe, start.
# It runs in the node's environment, so the keeper finds processes that it leaves running by their variable.
set -eu

log=$1 ready=$2 server=$3 task=${4-}

fail() {
    echo "$1" >&2
    exit 1
}

# Whether the process is running, is no zombie, and is ours: process ids are reused.
lives() {
    grep -qszxF "CAMPANILE_SERVERS_FOLDER=$CAMPANILE_SERVERS_FOLDER" "/proc/$1/environ"
}

# Read once, because the node removes the file when it begins to stop.
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
    # A group of its own, so that it outlives the process that called this script.
    setsid "$server" >> "$log" 2>&1 < /dev/null &
    rounds=0
    until tail -c "+$from" "$log" | grep -qF "$ready"; do
        # While a process executes another program, its environment is empty. Our own children leave no zombies.
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
