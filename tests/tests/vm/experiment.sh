# The settings of two published experiments (Makita, LinuxCon Japan 2016; Herbert, RPS, 2010) on a machine of the first one's shape, and
# what is counted in each: timings mean nothing here. Sourced by script.sh, which has `step` and `awaited`.
# Queue N's IRQ to CPU N modulo $1.
irqs() {
    awk '/virtio[0-9]*-input\.[0-9]+$/ { sub(":", "", $1); sub(/.*\./, "", $NF); print $1, $NF }' /proc/interrupts |
        while read -r irq queue; do
            echo "$((queue % $1))" > "/proc/irq/$irq/smp_affinity_list" || exit
        done
}
# The same RPS mask for each of these queues.
rps() {
    mask=$1
    shift
    for queue in "$@"; do echo "$mask" > "/sys/class/net/eth0/queues/rx-$queue/rps_cpus" || return; done
}
no_rps() {
    # shellcheck disable=SC2046
    rps 0 $(seq 0 15)
}
# The document's own masks: queues 6 to 9 to a CPU of their node each, and its second one.
published_rps() {
    rps 10040 6 && rps 20080 7 && rps 40100 8 && rps 80200 9
}
# A server with a worker for each CPU, and the packets that the host sends to it. Its summary has the counts of its sockets.
round() {
    round=$1
    shift
    rm -f /tmp/server
    udpath serve echo --bind 0.0.0.0:7400 --workers 20 --batch 1 "$@" --json > /tmp/summary 2> /tmp/server &
    server=$!
    awaited grep -q ready /tmp/server
    # An IRQ moves with its next interrupt: the host sends some packets first.
    step "$round-ready" true
    until [ -e "/out/$round-moved" ]; do sleep 0.1; done
    step "$round-before" udpath show --snapshot
    until [ -e "/out/$round-sent" ]; do sleep 0.1; done
    # What is still queued.
    sleep 1
    step "$round-after" udpath show --snapshot
    kill $server
    step "$round-served" summary
}
summary() {
    wait $server
    cat /tmp/summary
}

ethtool -X eth0 equal 16
irqs 10 && round one-node --io shared --no-pin
irqs 16 && round hints --io shared --no-pin
published_rps && round spread --io shared --no-pin
round reuseport --io reuseport --no-pin
round by-cpu --io percpu --pin
no_rps
# A card with one queue: without RPS, and over all CPUs.
ethtool -X eth0 equal 1
round one-queue --io reuseport --no-pin
rps fffff 0 && round one-queue-rps --io reuseport --no-pin
no_rps
ethtool -X eth0 equal 16
