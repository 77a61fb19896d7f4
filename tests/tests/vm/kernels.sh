#!/bin/sh
# Runs in an emulated machine with any supported kernel: every verb, every Io and every load engine once. Every step
# leaves its stdout, stderr and exit code in /out/steps; the expected values are in kernels.rs. "$1" is `whole` for the
# steps that take long here.
mkdir /out/steps
step() {
    name=$1
    shift
    "$@" > "/tmp/$name.out" 2> "/tmp/$name.err"
    ended=$?
    # Each file at once: each small write to /out is a round trip to the host. The code comes last: the host waits for it.
    cp "/tmp/$name.out" "/tmp/$name.err" /out/steps/
    echo $ended > "/out/steps/$name.code"
    read -r now _ < /proc/uptime
    echo "$now $name" >> /tmp/seconds
}
# Waits until a command succeeds, 60 s at most. The next step shows whether it did.
awaited() {
    tries=0
    until "$@" 2> /dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || return
        sleep 0.1
    done
}
# Waits for the host's part of a step.
host_has() {
    until [ -e "/out/$1" ]; do sleep 0.1; done
}

step release uname -r
step shape sh -c 'nproc; ls -d /sys/devices/system/node/node[0-9]* | wc -l; ls -d /sys/class/net/eth0/queues/rx-* | wc -l'
step version udpath --version
step show udpath show
step show-json udpath show --json
for link in eth0 eth1 eth2; do step "show-$link" udpath show $link --json; done
step snapshot udpath show --snapshot
step top udpath top --once --json -i 0.5
step metrics udpath export --once --queues
step predict udpath predict 10.0.0.1:20000 10.0.0.2:5300 --interface eth0
step support udpath support -o /tmp/capture.tar.gz
step from-support udpath show --sysroot /tmp/capture.tar.gz --json
step completions udpath completions bash
step man udpath man /tmp/man
step lab-up udpath lab up pair --queues 2
step lab-exec udpath lab exec pair/client -- cat /proc/sys/net/ipv4/conf/eth0/forwarding
step lab-down udpath lab down pair

# A setting of each of the three drivers, one of the kernel, and an IRQ.
settings="--set eth0:rps/rx-0=1 --set eth0:irq/rx-1=0 --set eth1:ring/rx=512 --set eth2:coalesce/rx-usecs=50"
settings="$settings --set sysctl:net.core.rmem_max=4194304"
look() {
    cat /sys/class/net/eth0/queues/rx-0/rps_cpus /proc/sys/net/core/rmem_max /sys/class/net/eth2/mtu
    awk '/virtio[0-9]*-input\.1$/ { sub(":", "", $1); print $1; exit }' /proc/interrupts |
        while read -r irq; do cat "/proc/irq/$irq/smp_affinity_list"; done
}
step looked-before look
# shellcheck disable=SC2086
step plan udpath plan $settings
# shellcheck disable=SC2086
step apply udpath apply $settings --confirm 10m
step confirm udpath confirm
step status udpath status
step looked-applied look
step undo udpath undo
step looked-after look
step status-after udpath status

# A policy of a cgroup, for a server that knows nothing of it. systemd would have mounted both.
mount -t cgroup2 none /sys/fs/cgroup
mount -t bpf none /sys/fs/bpf
mkdir /sys/fs/cgroup/srv.service
# The receive buffer of a server that starts now, as another tool shows it, and whether its policies are in effect.
bound() {
    rm -f /tmp/bound
    # shellcheck disable=SC2016
    sh -c 'echo $$ > /sys/fs/cgroup/srv.service/cgroup.procs; exec udpath serve echo --io shared --bind 127.0.0.1:9' \
        > /tmp/counters 2> /tmp/bound & server=$!
    awaited grep -q '^ready' /tmp/bound
    ss -Huanm sport = :9 | grep -o 'rb[0-9]*'
    udpath policy list
    kill -TERM $server
    wait $server
}
step policy-before bound
step policy-set udpath policy set /srv.service receive-buffer=300000 priority=6
step policy-bound bound
step policy-show udpath policy show /srv.service
step policy-remove udpath policy remove /srv.service
step policy-after bound
step policy-pins ls /sys/fs/bpf

# Two instances of a server on one port, and nothing of them afterwards.
ip link set lo up
echo root:x:0:0::/:/bin/sh >> /etc/passwd
printf 'local stratum 8\nallow\nport 1123\nbindaddress 127.0.0.1\n' > /tmp/server.conf
udpath multiply ntp -n 2 --start-limit 60s -- chronyd -x -d -u root -f /tmp/server.conf > /dev/null 2> /tmp/instances & supervisor=$!
awaited grep -q '^ready: ' /tmp/instances
step multiply-up cat /tmp/instances
step multiply-load udpath load ntp 127.0.0.1:1123 --flows 64 -d 1s --json
step multiply-status udpath multiply ntp --json
step multiply-stop udpath multiply ntp --stop
step multiply-code wait $supervisor
step multiply-left find /sys/fs/bpf /sys/fs/cgroup /run/udpath/multiply -mindepth 1 -maxdepth 1 -name '*udpath*' -o -name ntp

# `step` sets `name`. The host sends to the service once NAME-up has ended, and says so.
serve() {
    service=$1
    shift
    # Or the previous one's output would be there until this one starts.
    rm -f /tmp/said
    udpath serve echo --json "$@" > /tmp/served 2> /tmp/said & server=$!
    ready() { grep -q '^ready' /tmp/said || ! kill -0 $server; }
    awaited ready
    [ "$service" != reuseport ] || selected
    step "$service-up" cat /tmp/said
    if kill -0 $server 2> /dev/null; then
        host_has "$service-sent"
        step "$service-network" network
        [ "$service" != shared ] || step profile profile
        kill -TERM $server
    fi
    step "$service-served" served
}
# Where the host's datagrams went, if they were not answered.
network() {
    cat /proc/net/snmp /proc/net/softnet_stat /proc/net/dev
    ip neigh
    ss -Huanm
}
# The host's load then goes to the sockets by the last of these.
selected() {
    step select-field udpath apply --set port:7:selection=field:0+4
    step select-least-loaded udpath apply --set port:7:selection=least-loaded
    step selected udpath status
}
served() {
    wait $server
    code=$?
    cat /tmp/served
    return $code
}
# Under the load of the host, which goes on until the step has ended.
profile() {
    udpath profile --port 7 -d 6s --trace all --json
}
all="--bind 10.0.0.2:7 --bind 10.0.1.2:7 --bind 10.0.2.2:7"
# shellcheck disable=SC2086
for io in shared reuseport percpu; do serve $io --io $io $all; done
serve xdp --io xdp --bind 10.0.0.2:7
serve xdp-vmxnet3 --io xdp --bind 10.0.1.2:7
serve xdp-e1000e --io xdp --bind 10.0.2.2:7
serve auto --io auto --bind 10.0.0.2:7

# The load engines, against a service of the host.
for engine in socket kernel xdp; do
    step "load-$engine" udpath load echo 10.0.0.1:7 --engine $engine --flows 4 -d 1s --timeout 5s --json
done
step load-ntp udpath load ntp 10.0.0.1:123 --engine kernel --flows 4 -d 1s --timeout 5s --json
printf '3 echo 10.0.0.1:7 --size 64\n1 ntp 10.0.0.1:123\n' > /tmp/mix
step load-mix udpath load mix --mix /tmp/mix --engine kernel --flows 4 -d 1s --timeout 5s --json
# Nobody answers: the verifier has taken the program all the same.
step load-snmp udpath load snmp 10.0.0.1:161 --engine kernel --flows 4 -d 200ms --timeout 500ms --json
step report udpath report /tmp/load-socket.out

# The whole ladder takes minutes here.
if [ "$1" = whole ]; then
    step boost udpath boost --lab --seconds 0.5 --bound 2.5 --blocks 7 --json
fi
cp /tmp/seconds /out/steps/
