#!/bin/sh
# Runs in the emulated machine. Every step leaves its stdout, stderr and exit code in /out/steps; the expected values
# are in the tests. A new verb needs a line here and a check of its output there. The time from boot to the end of
# each step is in /out/steps/seconds.
mkdir /out/steps
step() {
    name=$1
    shift
    "$@" > "/out/steps/$name.out" 2> "/out/steps/$name.err"
    echo $? > "/out/steps/$name.code"
    read -r now _ < /proc/uptime
    echo "$now $name" >> /tmp/seconds
}
# Waits until a command succeeds, 20 s at most. The next step shows whether it did.
awaited() {
    tries=0
    until "$@" 2> /dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || return
        sleep 0.02
    done
}
# Starts a server, whose pid is in $server, and waits until it says that it is ready. What the one before said is gone first.
serving() {
    rm -f /tmp/server
    "$@" > /tmp/server 2>&1 &
    server=$!
    awaited grep -q ready /tmp/server
}
# A step for each round of a campaign, NAME-1 and on. How many with a cause, and how many of its twin, is the test's to say.
rounds() {
    campaign=$1
    last=$2
    shift 2
    for round in $(seq "$last"); do step "$campaign-$round" "$@"; done
}
read -r count < /out/rounds
# The host sends according to the current RSS table: first a few packets to each queue, since an IRQ moves with its
# next interrupt; then, once the counters are read, the packets that are counted. The prediction for each is compared
# with its actual path, until all are sent.
packets() {
    step "$1-rss" ethtool -x eth0
    until [ -e "/out/$1-moved" ]; do sleep 0.1; done
    # Or an earlier one's output would be there until this one starts.
    rm -f /tmp/watcher
    udpath predict --interface eth0 --to 5300 --verify=600 --json > /tmp/verified 2> /tmp/watcher &
    watcher=$!
    awaited grep -q watching /tmp/watcher
    step "$1-before" counters
    until [ -e "/out/$1-sent" ]; do sleep 0.1; done
    step "$1-after" counters
    kill $watcher
    step "$1-verified" watched
}
watched() {
    wait $watcher
    ended=$?
    cat /tmp/verified
    cat /tmp/watcher >&2
    return $ended
}
# By CPU, and by queue: this driver reports those only over netlink.
counters() {
    cat /proc/net/softnet_stat && udpath show --snapshot
}
# Number of the interrupt whose name ends with this.
irq_of() {
    awk -v name="$1" '$NF == name || substr($NF, length($NF) - length(name)) == "-" name { sub(":", "", $1); print $1; exit }' \
        /proc/interrupts
}

# In a machine of its own, as it has booted.
if [ "${1:-}" = experiment ]; then
    . /files/experiment.sh
    cp /tmp/seconds /out/steps/
    exit
fi

# The machine's topology.
step nodes cat /sys/devices/system/node/node0/cpulist /sys/devices/system/node/node1/cpulist
step near sh -c 'for link in eth0/device/.. eth1/device eth2/device; do cat /sys/class/net/$link/numa_node; done'
step drivers sh -c 'for link in eth0 eth1 eth2; do basename "$(readlink /sys/class/net/$link/device/driver)"; done'

# The program, on a kernel other than the one it was built on.
step version udpath --version
step lab-up udpath lab up pair --queues 4
step lab-list udpath lab list --json
step lab-exec udpath lab exec pair/client -- cat /proc/sys/net/ipv4/conf/eth0/forwarding
step lab-down udpath lab down pair
step lab-left ls /run/netns

# Queue N's IRQ to CPU N, but queue 3's to CPU 13 of the other node and vice versa: written and read back.
cpu_of() { case $1 in 3) echo 13 ;; 13) echo 3 ;; *) echo "$1" ;; esac; }
affinity() {
    awk '/virtio[0-9]*-input\.[0-9]+$/ { sub(":", "", $1); sub(/.*\./, "", $NF); print $1, $NF }' /proc/interrupts |
        while read -r irq queue; do
            cpu_of "$queue" > "/proc/irq/$irq/smp_affinity_list" || exit
            read -r cpu < "/proc/irq/$irq/smp_affinity_list"
            echo "$queue $cpu"
        done
}
step affinity affinity

# The parts of /proc and /sys that a capture needs, as the kernel shows them: read completely, since sizes
# there are meaningless.
mkdir /tmp/captured
(
    cd / || exit
    find proc/[a-z]* -maxdepth 0 -type f ! -name kcore ! -name kmsg ! -name 'kpage*' ! -name kallsyms ! -name sysrq-trigger
    find proc/irq proc/sys/net proc/sys/kernel proc/1/net/ -type f ! -name flush
    find proc/1 -maxdepth 1 -type f \( -name comm -o -name cmdline -o -name stat -o -name status -o -name mountinfo \)
    find sys/class/net sys/devices/system/cpu sys/devices/system/node sys/devices/system/clocksource sys/kernel/irq
    find sys/class/dmi/id/ -maxdepth 1 -type f ! -name modalias ! -name uevent
    for device in /sys/class/net/eth*/device; do
        device=$(readlink -f "$device") && device=${device%/virtio*} && device=${device#/}
        find "$device" -maxdepth 1 \( -name 'numa_node' -o -name 'local_cpulist' -o -name vendor -o -name device \
            -o -name driver -o -name subsystem \)
        find "$device/msi_irqs" "$device"/*/driver "$device"/*/net "$device/net" 2> /dev/null
    done
    find sys/devices/virtual/net sys/module/virtio_net/version sys/module/vmxnet3/version 2> /dev/null
) > /tmp/names
# Unreadable files are left out.
(cd / && while read -r name; do [ -d "$name" ] && [ ! -L "$name" ] || echo "$name"; done < /tmp/names |
    xargs cp -a --parents -t /tmp/captured 2> /tmp/unreadable)
# The process that reads it becomes process 1.
ln -s 1 /tmp/captured/proc/self && ln -s self/net /tmp/captured/proc/net
step captured wc -l /tmp/names /tmp/unreadable
# Packed here: each small write to /out is a round trip to the host.
step pack sh -c 'tar -c -C /tmp/captured proc sys | gzip -1 > /tmp/captured.tar.gz'
step capture cp /tmp/captured.tar.gz /out/

# Fixtures: what the kernel answers to everything that is asked, byte for byte; what ethtool makes of it; a capture, redacted.
mkdir /tmp/netlink
step netlink record_netlink /tmp/netlink eth0 eth1 eth2
as_ethtool() {
    for link in eth0 eth1 eth2; do
        for page in -i -l -g -c -k -x -T; do
            echo "$ ethtool $page $link"
            # What a driver lacks is an error.
            ethtool $page $link 2>&1
        done
    done
}
step as-ethtool as_ethtool
step support udpath support --keep-rss-key -o /tmp/support.tar.gz
step keep cp /tmp/netlink/generic.netlink /tmp/netlink/route.netlink /tmp/support.tar.gz /out/

# Which queue receives which packets.
step fields ethtool -n eth0 rx-flow-hash udp4
# Each packet carries its hash once the driver passes it on.
step rxhash ethtool -K eth0 rxhash on
packets predicted

# Makita's server (LinuxCon Japan 2016): all interrupts on one node, and an RSS table that covers too few queues. Detected, fixed
# by one plan, verified, and restored.
one_node() {
    awk '/virtio[0-9]*-input\.[0-9]+$/ { sub(":", "", $1); sub(/.*\./, "", $NF); print $1, $NF }' /proc/interrupts |
        while read -r irq queue; do
            echo "$((queue % 10))" > "/proc/irq/$irq/smp_affinity_list" || exit
        done
    ethtool -X eth0 equal 12
}
wishes="--set eth0:rss/table=equal:16"
for queue in $(seq 0 15); do wishes="$wishes --set eth0:irq/rx-$queue=$queue"; done
step arrange one_node
packets found
step found udpath show eth0 --json
step found-text udpath show eth0
# shellcheck disable=SC2086
step plan udpath plan $wishes
# shellcheck disable=SC2086
step apply udpath apply $wishes --reason "one queue to a CPU"
packets better
step better udpath show eth0 --json
step spread ethtool -x eth0
step status udpath status
step undo udpath undo
step undone udpath show eth0 --json
step predicted udpath predict 10.0.0.1:20000 10.0.0.2:5300 --interface eth0
step vmxnet3 udpath show eth1 --json
step metrics udpath export --once --queues
step top udpath top --once -i 0.5
step top-json udpath top --once --json -i 0.5

# More neighbours are addressed than the table may hold: none of them exists, so each entry stays until its host is given up. The
# limits are the machine's, not a namespace's.
overflow() {
    cd /proc/sys/net/ipv4/neigh/default && before=$(cat gc_thresh1 gc_thresh2 gc_thresh3)
    for n in 1 2 3; do echo $((4 * n)) > gc_thresh$n; done
    ip address add 198.51.100.1/24 dev eth1 && ip link set eth1 up
    to=
    for host in $(seq 2 99); do to="$to 198.51.100.$host:7"; done
    # shellcheck disable=SC2086
    udpath load echo $to --flows 98 --rate 200 -d 60s > /dev/null 2>&1 &
    sender=$!
    sleep 1
    udpath diagnose -d 2s --json
    ended=$?
    kill -9 $sender
    ip address del 198.51.100.1/24 dev eth1
    # shellcheck disable=SC2086
    set -- $before && echo "$1" > gc_thresh1 && echo "$2" > gc_thresh2 && echo "$3" > gc_thresh3
    return $ended
}
step overflow overflow

# A program that selects by CPU modulo eight among four sockets has none for every second four CPUs, until one that counts four
# takes its place. The kernel has no sock_diag here.
serving udpath serve echo --io reuseport --workers 4 --bind 0.0.0.0:7300
step by-cpu udpath apply --state /tmp/by-cpu --set port:7300:selection=by-cpu:8
step without-socket udpath show --json
step without-diagnosed udpath diagnose -d 1s --json
step by-cpu-again udpath apply --state /tmp/by-cpu --set port:7300:selection=by-cpu
step with-sockets udpath show --json
kill $server && wait $server

# A clock that only a device of the board has: each reading leaves the CPU. The load reads it for each request, as servers do.
clock() {
    chosen=/sys/devices/system/clocksource/clocksource0/current_clocksource
    before=$(cat $chosen)
    echo "$1" > $chosen && udpath diagnose 7301 -d 3s --json
    ended=$?
    echo "$before" > $chosen
    return $ended
}
serving udpath serve echo --io reuseport --workers 1 --bind 127.0.0.1:7301
udpath load echo 127.0.0.1:7301 --flows 4 --inflight 1 -d 2h > /dev/null 2>&1 &
load=$!
sleep 1
step clocks cat /sys/devices/system/clocksource/clocksource0/available_clocksource
rounds clock-slow "$count" clock acpi_pm
rounds clock-fast "$count" clock tsc
kill $load $server && wait $load $server

# Whether the kernel has dropped datagrams that came to this port.
drops() {
    awk -v port=":$(printf %04X "$1")" '$2 ~ port "$" && $NF > 0 { found = 1 } END { exit !found }' /proc/net/udp
}
# What a stopped server does not read, of which its buffer has room for more: until some are dropped (`limited`), or for a second (`free`).
# Then words for the shell that becomes the server.
unread() {
    serving sh -c "${2:-} exec udpath serve sink --io reuseport --workers 1 --rcvbuf 100000000 --bind 127.0.0.1:7302"
    kill -STOP $server
    udpath load sink 127.0.0.1:7302 --mode flood --size 1400 --flows 4 -d 60s > /dev/null 2>&1 &
    load=$!
    case $1 in
        limited) awaited drops 7302 ;;
        free) sleep 1 ;;
    esac
    udpath diagnose 7302 -d 2s --no-profile --json
    ended=$?
    kill $load && kill -9 $server && wait $load $server
    return $ended
}
# Datagrams that wait count against the memory limit of their server's control group: long before its buffer is full, they are lost.
limited() {
    echo "$1" > /tmp/groups/server/memory.max
    # The shell that becomes the server expands it.
    # shellcheck disable=SC2016
    unread "$2" 'echo $$ > /tmp/groups/server/cgroup.procs &&'
}
echo 100000000 > /proc/sys/net/core/rmem_max
mkdir -p /tmp/groups && mount -t cgroup2 none /tmp/groups && echo +memory > /tmp/groups/cgroup.subtree_control &&
    mkdir /tmp/groups/server
rounds memory-limited "$count" limited 64M limited
rounds memory-free "$count" limited max free
umount /tmp/groups
# They count against what all UDP sockets may hold, too.
together() {
    before=$(cat /proc/sys/net/ipv4/udp_mem)
    echo "$1 $1 $1" > /proc/sys/net/ipv4/udp_mem && unread "$2"
    ended=$?
    echo "$before" > /proc/sys/net/ipv4/udp_mem
    return $ended
}
rounds udp-limited "$count" together 2000 limited
rounds udp-free "$count" together 2000000 free

# Packets that are handed to three other CPUs wait in their backlogs, of so many at most; of a flow that has most of them fewer, if its CPU
# is among those. The same load of so many flows.
handed() {
    for setting in netdev_max_backlog flow_limit_cpu_bitmap; do
        eval "$setting=$(cat /proc/sys/net/core/$setting)"
    done
    echo "$1" > /proc/sys/net/core/netdev_max_backlog
    echo "$2" > /proc/sys/net/core/flow_limit_cpu_bitmap
    echo e > /sys/class/net/lo/queues/rx-0/rps_cpus
    serving udpath serve sink --io reuseport --workers 1 --bind 127.0.0.1:7303
    # On one CPU: each has a history of flows of its own, and limits none before that shows one.
    taskset 20 udpath load sink 127.0.0.1:7303 --mode flood --rate 4000 --flows "$3" -d 60s > /dev/null 2>&1 &
    load=$!
    sleep 1
    udpath diagnose 7303 -d 2s --no-profile --json
    ended=$?
    kill $load $server && wait $load $server
    echo 0 > /sys/class/net/lo/queues/rx-0/rps_cpus
    # shellcheck disable=SC2154
    echo "$netdev_max_backlog" > /proc/sys/net/core/netdev_max_backlog
    # shellcheck disable=SC2154
    echo "$flow_limit_cpu_bitmap" > /proc/sys/net/core/flow_limit_cpu_bitmap
    return $ended
}
rounds backlog-short "$count" handed 0 0 16
rounds backlog-long "$count" handed 1000 0 16
rounds flow-limited "$count" handed 2 fffff 1
rounds flow-free "$count" handed 1000 fffff 1

. /files/settings.sh

# A CPU goes offline in the middle of a profile. Last, since drivers reassign their queues when CPUs come and go.
leave() {
    udpath profile -d 3s --rate 100 --json &
    profile=$!
    # While sampling, it sleeps in clock_nanosleep between reads of its rings.
    awaited grep -q '^230 ' /proc/$profile/syscall
    sleep 1
    echo 0 > /sys/devices/system/cpu/cpu19/online
    wait $profile
    ended=$?
    echo 1 > /sys/devices/system/cpu/cpu19/online
    return $ended
}
step left leave
cp /tmp/seconds /out/steps/
