#!/bin/sh
# Runs in the emulated machine, twice: called with the boot's name, it restores /etc and starts systemd; called as the
# unit steps.service of that systemd, it runs the steps. The expected output is in main.rs.
set -u
steps=/out/steps
step() {
    name=$1
    shift
    "$@" > "$steps/$name.out" 2> "$steps/$name.err"
    echo $? > "$steps/$name.code"
}
# Waits until a command succeeds, 60 s at most. The next step shows whether it did.
awaited() {
    tries=0
    until "$@" > /dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || return
        sleep 0.1
    done
}
irq_of() {
    awk -v name="$1" '$NF ~ name "$" { sub(":", "", $1); print $1; exit }' /proc/interrupts
}
# Prints the settings with tools other than udpath.
look() {
    echo "rmem=$(cat /proc/sys/net/core/rmem_max)"
    echo "rps=$(cat /sys/class/net/eth0/queues/rx-0/rps_cpus)"
    echo "defer=$(cat /sys/class/net/eth0/napi_defer_hard_irqs)"
    echo "channels=$(ethtool -l eth0 | awk '/^Combined/ { now = $2 } END { print now }')"
    echo "ring=$(ethtool -g eth2 | awk '/^RX:/ { now = $2 } END { print now }')"
    echo "irq=$(cat "/proc/irq/$(irq_of 'input[.]1')/smp_affinity_list")"
    echo "usecs=$(ethtool -c eth2 | awk '/^rx-usecs:/ { print $2 }')"
    echo "qdisc=$(ip link show eth2 | grep -o 'qdisc [a-z_]*')"
    echo "mtu0=$(cat /sys/class/net/eth0/mtu)"
    echo "mtu2=$(cat /sys/class/net/eth2/mtu)"
}
# Lists every file that a boot reads.
files() {
    find /etc /usr/sbin -type f ! -name machine-id | sort
}

begin() {
    [ ! -e /out/kept.tar ] || tar -xf /out/kept.tar -C /
    rm -rf $steps
    # The kernel makes folders of an initramfs world-writable, and starts its programs with no umask.
    umask 022
    chmod 755 / /usr /usr/sbin
    find / -xdev -type d -perm -0002 ! -perm -1000 -exec chmod go-w {} +
    mkdir -p $steps /etc/systemd/system /etc/systemd/network/99-default.link.d /etc/sysctl.d /var/lib/udpath /usr/lib/udev
    echo "$1" > /tmp/name
    # Like Debian's.
    ln -sf /bin/udevadm /usr/lib/systemd/systemd-udevd
    mkdir -p /bin /usr/lib/systemd/system/sysinit.target.wants /usr/lib/systemd/system/sockets.target.wants
    [ -e /bin/udevadm ] || ln -s /usr/bin/udevadm /bin/udevadm
    # Started at boot, like after the installation of its package.
    mkdir -p /etc/systemd/system/multi-user.target.wants
    ln -sf /usr/lib/systemd/system/nsd.service /etc/systemd/system/multi-user.target.wants/nsd.service
    for unit in systemd-udevd systemd-udev-trigger systemd-sysctl; do
        ln -sf ../$unit.service /usr/lib/systemd/system/sysinit.target.wants/
    done
    for unit in control kernel; do
        ln -sf ../systemd-udevd-$unit.socket /usr/lib/systemd/system/sockets.target.wants/
    done
    ln -sf ../sysctl.conf /etc/sysctl.d/99-sysctl.conf
    [ -e /lib/systemd/system ] || { mkdir -p /lib/systemd && ln -sf /usr/lib/systemd/system /lib/systemd/system; }
    for part in systemd-udevd systemd-sysctl; do ln -sf /usr/lib/systemd/$part /lib/systemd/$part; done
    echo 0123456789abcdef0123456789abcdef > /etc/machine-id
    printf 'root:x:0:0::/root:/bin/sh\nnsd:x:100:100::/var/lib/nsd:/bin/sh\n_chrony:x:101:101::/:/bin/sh\nudpath:x:102:102::/:/bin/sh\n' > /etc/passwd
    printf 'root:x:0:\nnsd:x:100:\n_chrony:x:101:\nudpath:x:102:\n' > /etc/group
    # As Debian's package leaves it, but its log goes to the console, and it has no certificates for remote control.
    mkdir -p /etc/nsd/nsd.conf.d /var/lib/nsd /var/tmp /home && chown 100:100 /var/lib/nsd
    printf 'server:\n    verbosity: 1\nremote-control:\n    control-enable: no\ninclude: "/etc/nsd/nsd.conf.d/*.conf"\n' > /etc/nsd/nsd.conf
    # A server with a socket for each of four threads, which knows nothing of how datagrams are spread over them.
    cat > /etc/systemd/system/collector.service <<UNIT
[Service]
ExecStart=/usr/sbin/udpath serve echo --io reuseport --workers 4 --bind 127.0.0.1:2055 --json
StandardOutput=truncate:/tmp/collected
StandardError=kmsg
UNIT
    ln -sf /etc/systemd/system/collector.service /etc/systemd/system/multi-user.target.wants/collector.service
    # Like Debian's chrony.service, but it serves time only, and stays in the foreground.
    mkdir -p /etc/chrony /etc/default
    printf 'local stratum 8\nallow\ncmdport 0\n' > /etc/chrony/server.conf
    echo 'DAEMON_OPTS="-x -d -f /etc/chrony/server.conf"' > /etc/default/chrony
    cat > /etc/systemd/system/ntp-server.service <<UNIT
[Service]
Type=exec
EnvironmentFile=-/etc/default/chrony
User=_chrony
ExecStart=!/usr/sbin/chronyd \$DAEMON_OPTS
RuntimeDirectory=chrony
ProtectControlGroups=yes
ProtectSystem=strict
PrivateTmp=yes
Restart=on-failure
UNIT
    ln -sf /etc/systemd/system/ntp-server.service /etc/systemd/system/multi-user.target.wants/ntp-server.service
    # The exporter, as its package has it, and enabled.
    ln -sf /usr/lib/systemd/system/udpath-export.service /etc/systemd/system/multi-user.target.wants/udpath-export.service
    mkdir -p /etc/systemd/system/udpath-export.service.d
    printf '[Service]\nStandardError=truncate:/tmp/exporter\n' > /etc/systemd/system/udpath-export.service.d/log.conf
    # The operator's configuration of this machine: a sysctl, MTUs, the kernel's interface names.
    echo net.core.rmem_max=300000 > /etc/sysctl.conf
    printf '[Link]\nNamePolicy=keep kernel\nMTUBytes=1400\n' > /etc/systemd/network/99-default.link.d/50-site.conf
    printf '[Match]\nMACAddress=%s\n[Link]\nNamePolicy=keep kernel\nMTUBytes=1300\n' "$(cat /sys/class/net/eth2/address)" \
        > /etc/systemd/network/10-lan2.link
    cat > /etc/systemd/system/steps.service <<UNIT
[Unit]
After=multi-user.target irqbalance.service
[Service]
Type=oneshot
Environment=PATH=$PATH:/usr/sbin:/usr/bin HOME=/root
ExecStart=/bin/sh /files/boot.sh
UNIT
    cat > /etc/systemd/system/steps.target <<UNIT
[Unit]
Wants=multi-user.target irqbalance.service steps.service
UNIT
    ln -sf steps.target /etc/systemd/system/default.target
    printf '[Manager]\nDefaultStandardOutput=kmsg\nDefaultStandardError=kmsg\n' > /etc/systemd/system.conf
    # udevd sets them up as they appear, like in any boot.
    for link in 0 1 2; do ip link set eth$link down; done
    ip link set lo up
    SYSTEMD_LOG_TARGET=kmsg unshare -m -p -f --mount-proc /usr/lib/systemd/systemd > /dev/console 2>&1 &
    outer=$!
    until [ -e /tmp/done ]; do
        kill -0 $outer 2> /dev/null || { echo "systemd ended" >&2; dmesg | tail -n 40 >&2; exit 1; }
        sleep 0.2
    done
    dmesg > /out/dmesg-"$1"
    # Power failure.
    kill -9 $outer
    exit 0
}

apply="udpath apply --persist --set sysctl:net.core.rmem_max=4194304 --set eth0:rps/rx-0=1 --set eth0:rps/rx-1=0 --set eth0:napi/defer-hard-irqs=2
    --set eth0:channels/combined=2 --set eth2:ring/rx=512 --set eth2:coalesce/rx-usecs=50"
# A setting that no system file can express: a unit. irqbalance runs and is notified.
rest="udpath apply --persist --set eth0:irq/rx-1=3 --set eth2:qdisc=fq"
entries() {
    cd /var/lib/udpath/journal && ls *.journal
}

# An unconfirmed apply, in a cgroup that is killed with everything in it. It has a journal of its own.
doomed_rps=/sys/class/net/eth2/queues/rx-0/rps_cpus
doomed_state=/var/lib/udpath/doomed
doomed() {
    mkdir /sys/fs/cgroup/doomed
    sh -c "echo \$\$ > /sys/fs/cgroup/doomed/cgroup.procs
        exec udpath apply --state $doomed_state --confirm 20s --set eth2:rps/rx-0=1"
    echo 1 > /sys/fs/cgroup/doomed/cgroup.kill
    cat $doomed_rps
}
reverted() {
    [ "$(cat $doomed_rps)" = 0 ]
}

# A server of Debian's under its own unit, whose configuration changes and is put back.
nsd_is() {
    systemctl show --property MainPID nsd.service
    wc -l < /sys/fs/cgroup/system.slice/nsd.service/cgroup.procs
    ls /etc/nsd/nsd.conf.d
}
server() {
    step nsd-start systemctl start nsd.service
    step nsd-before nsd_is
    step nsd-apply udpath apply --state /tmp/nsd --set service:53:server-count=2 --allow config --allow restart
    step nsd-applied nsd_is
    step nsd-undo udpath undo --state /tmp/nsd
    step nsd-undone nsd_is
    systemctl stop nsd.service
}

# A policy for nsd, which is not told: buffers as another tool shows them, before and after restarts by systemd.
buffers() {
    ss -Huam sport = :53 | grep -o 'rb[0-9]*\|tb[0-9]*' | sort -u | tr '\n' ' '
    cat /proc/sys/net/core/wmem_max
}
restarts() {
    for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        # systemd allows five starts in ten seconds.
        systemctl reset-failed nsd.service
        systemctl restart nsd.service
        awaited bound
        buffers
    done
}
bound() {
    ss -Huan sport = :53 | grep -q .
}
policy() {
    step policy-unknown udpath policy set nosuch.service receive-buffer=1M
    step policy-stopped udpath policy show nsd.service
    systemctl start nsd.service
    awaited bound
    step policy-before buffers
    step policy-set udpath policy set nsd.service receive-buffer=1500000 send-buffer=16M --persist
    step policy-later udpath policy list
    step policy-restarts restarts
    step policy-show udpath policy show nsd.service
    systemctl stop nsd.service
    step policy-off udpath policy show nsd.service --json
}
policy_booted() {
    step policy-unit systemctl status udpath-4-policy.service --no-pager
    awaited bound
    # Microseconds after boot.
    step policy-ended systemctl show --property ExecMainExitTimestampMonotonic --value udpath-4-policy.service
    step policy-started systemctl show --property ExecMainStartTimestampMonotonic --value nsd.service
    step policy-booted buffers
    step policy-holds udpath policy list
}
policy_removed() {
    step policy-remove udpath policy remove nsd.service
    systemctl restart nsd.service
    awaited bound
    step policy-after buffers
    step policy-none udpath policy list
    step policy-pins ls /sys/fs/bpf
}

# How one flow is spread over the sockets of the collector, which has counted the datagrams of each thread once it ends. Its
# journal is its own, so that the numbers of other entries do not depend on it.
spread_state=/var/lib/udpath/spread
spread_over() {
    # The server may have been started just now.
    udpath load echo 127.0.0.1:2055 --flows 1 -d 4s > /dev/null
    systemctl stop collector.service
    cat /tmp/collected
    systemctl start collector.service
}
spread() {
    step spread-before spread_over
    step spread-set udpath policy set --state $spread_state collector.service:2055 spread=round-robin
    step spread-later udpath policy show collector.service
    systemctl restart collector.service
    step spread-set-now udpath policy show collector.service
}
spread_booted() {
    step spread-holds udpath policy show collector.service
    step spread-status udpath status --state $spread_state
    step spread-booted spread_over
}
spread_removed() {
    step spread-undo udpath undo --state $spread_state
    systemctl restart collector.service
    step spread-after spread_over
    step spread-none udpath policy show collector.service
}

# A unit in two instances, which are units of their own in its sandbox.
multiply_state=/var/lib/udpath/multiply
ntp_load() {
    udpath load ntp 127.0.0.1:123 --flows 64 "$@" --json
}
ntp_is() {
    systemctl cat ntp-server.service
    systemctl is-active ntp-server.service
    for pid in $(cat /sys/fs/cgroup/system.slice/ntp-server.service/cgroup.procs); do cat /proc/$pid/comm; done
    ls /run/chrony
    find /run/systemd/system /sys/fs/cgroup/system.slice /run/udpath/multiply -mindepth 1 -maxdepth 1 -name '*ntp-server*' -o -name 'system-udpath*'
}
# The state, CPUs and sandbox of each instance.
instances_are() {
    for number in 1 2; do
        unit=udpath-ntp-server@$number.service
        systemctl show --property ActiveState,CPUAffinity,User,ProtectSystem,PrivateTmp $unit
        grep -h '^Cpus_allowed_list' /proc/"$(systemctl show --property MainPID --value $unit)"/status
    done
}
another_number() {
    ntp_load --rate 200 -d 10s & load=$!
    sleep 2
    udpath multiply --state $multiply_state ntp-server.service -n 3 > /tmp/three
    udpath multiply --state $multiply_state ntp-server.service -n 2 > /tmp/two
    wait $load
}
supervisor_is() {
    systemctl show --property MainPID --value ntp-server.service
}
other_supervisor() {
    now=$(supervisor_is)
    [ "$now" != 0 ] && [ "$now" != "$1" ] && systemctl is-active ntp-server.service
}
supervisor_killed() {
    before=$(supervisor_is)
    kill -9 "$before"
    awaited other_supervisor "$before"
    udpath multiply ntp-server.service --json
}
multiply() {
    step multiply-stopped udpath multiply nsd.service -n 2
    systemctl start nsd.service
    step multiply-nsd udpath multiply nsd.service -n 2
    systemctl stop nsd.service
    step multiply-collector udpath multiply --state $multiply_state collector.service -n 2 --port 2055
    step multiply-restored systemctl is-active collector.service
    step multiply-before ntp_is
    step multiply-set udpath multiply --state $multiply_state ntp-server.service -n 2
    step multiply-load ntp_load -d 1s
    step multiply-status udpath multiply ntp-server.service --json
    step multiply-instances instances_are
    step multiply-number another_number
    step multiply-three cat /tmp/three
    step multiply-two cat /tmp/two
}
multiply_booted() {
    awaited systemctl is-active ntp-server.service
    step multiply-holds udpath status --state $multiply_state --json
    step multiply-booted-load ntp_load -d 1s
    step multiply-booted udpath multiply ntp-server.service --json
    step multiply-killed supervisor_killed
}
multiply_removed() {
    step multiply-stop udpath multiply --state $multiply_state ntp-server.service --stop
    step multiply-after-load ntp_load -d 1s
    step multiply-after ntp_is
    step multiply-none udpath multiply ntp-server.service
    step multiply-undo udpath undo --state $multiply_state
}

# The exporter's processes: what each is called and may do, and what it answers.
scraped() {
    wget -q -O - http://127.0.0.1:9453/metrics
}
exporters() {
    for pid in $(cat /sys/fs/cgroup/system.slice/udpath-export.service/cgroup.procs); do
        tr '\0' ' ' < /proc/$pid/cmdline
        awk '/^(Uid|CapEff|NoNewPrivs|Seccomp):/ { printf "%s%s ", $1, $2 }' /proc/$pid/status
        echo
    done
}
exporter() {
    awaited scraped
    step export-said cat /tmp/exporter
    step export-active systemctl is-active udpath-export.service
    step export-processes exporters
    step export-metrics scraped
}

# irqbalance moves an interrupt when it likes, also to CPU 3, which is asked for below: not between a look and what is applied.
on_cpu_1() {
    balancer=$(systemctl show --property MainPID --value irqbalance.service)
    kill -STOP "$balancer"
    echo 1 > "/proc/irq/$(irq_of 'input[.]1')/smp_affinity_list"
}
first() {
    # Each in a place where another user can change it.
    mkdir -m 777 /tmp/open && cp /usr/sbin/udpath /tmp/open/udpath
    step clean files
    on_cpu_1
    step before look
    kill -CONT "$balancer"
    kept="apply --persist --set eth0:irq/rx-1=3"
    step writable /tmp/open/udpath $kept
    mkdir -p /opt/udpath && cp /usr/sbin/udpath /opt/udpath/ && chown 65534 /opt/udpath
    step owned /opt/udpath/udpath $kept
    rm -rf /tmp/open /opt/udpath
    step nothing-kept udpath status
    server
    step doomed doomed
    step apply $apply
    on_cpu_1
    # It is notified of the change, and has 20 s to answer.
    (sleep 2; kill -CONT "$balancer") &
    step rest $rest
    step applied look
    step unit cat /etc/systemd/system/udpath-2.service
    step files files
    step unconfirmed udpath apply --confirm 10m --set eth1:rps/rx-0=1
    policy
    spread
    multiply
    exporter
    step entries entries
    awaited reverted
    step reverted udpath status --state $doomed_state
    step reverted-is cat $doomed_rps
}
booted() {
    policy_booted
    spread_booted
    multiply_booted
    exporter
    step unit systemctl status udpath-2.service --no-pager
    step booted look
    step status-json udpath status --json
    step status udpath status
    if [ "$(udpath status --json | grep -c '"id"')" -gt 3 ]; then
        step confirm udpath confirm 3
        step close udpath undo 3
    fi
    step closed udpath status
    step entries entries
}
# A queue disappears and reappears, and a device sends a change event to udevd: the rules set them again.
queues() {
    ethtool -L eth0 combined 1
    echo 0 > /sys/class/net/eth0/queues/rx-0/rps_cpus
    ethtool -L eth0 combined 2
    echo change > /sys/class/net/eth0/uevent
    udevadm settle
    cat /sys/class/net/eth0/queues/rx-0/rps_cpus /sys/class/net/eth0/queues/rx-1/rps_cpus
}
last() {
    booted
    spread_removed
    multiply_removed
    policy_removed
    step undo-rest udpath undo
    step queues queues
    step undo udpath undo
    step undone look
    step left files
    step nothing udpath status
    step again udpath undo
}

if [ $# -eq 1 ]; then begin "$1"; fi
# Like networkd or ifupdown.
for link in 0 1 2; do ip link set eth$link up; done
case $(cat /tmp/name) in
    first) first ;;
    between) booted ;;
    last) last ;;
esac
# Everything a disk would keep.
tar -cf /out/kept.tar -C / etc var/lib/udpath
: > /tmp/done
