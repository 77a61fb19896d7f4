# Part of script.sh: every kind of setting on the drivers that support it, driver refusals, and ways an apply ends
# early. The requests, commands of other tools and expected output are in settings.rs; they arrive here as
# /out/groups/NAME, a line for each setting: request, tab, command.

# Reads a group's settings with other tools.
looks() {
    while IFS='	' read -r wish look; do
        echo "== $wish"
        eval "$look" < /dev/null
    done < "/out/groups/$1"
}
snapshot() {
    step "$1" udpath show --snapshot
}
wishes() {
    awk -F'\t' '{ printf "--set %s ", $1 }' "/out/groups/$1"
}
# One plan, read before, after, and once it is undone.
group() {
    step "$1-was" looks "$1"
    # shellcheck disable=SC2046
    step "$1-apply" udpath apply $(wishes "$1")
    step "$1-is" looks "$1"
    step "$1-undo" udpath undo
    step "$1-back" looks "$1"
    snapshot "$1-restored"
}

# Set everything to non-default values, so that losses are visible.
custom() {
    one_node
    ethtool -N eth0 rx-flow-hash udp6 sd
    echo 00003 > /sys/class/net/eth0/queues/tx-2/xps_cpus
    echo 0f0f0 > /sys/class/net/eth0/queues/rx-2/rps_cpus
    ethtool -X eth1 equal 4
    echo 13 > "/proc/irq/$(irq_of eth1-rxtx-1)/smp_affinity_list"
    echo 00300 > /sys/class/net/eth1/queues/rx-3/rps_cpus
    echo 0c000 > /sys/class/net/eth1/queues/tx-3/xps_cpus
    ethtool -C eth2 rx-usecs 30
    echo 14 > "/proc/irq/$(irq_of eth2-rx-0)/smp_affinity_list"
}
step custom custom
snapshot before
for name in eth0 channels device eth1 eth2; do group "$name"; done

# Requests that a driver refuses.
refuse() {
    while IFS='	' read -r name wishes; do
        # shellcheck disable=SC2046
        step "refused-$name" udpath apply $(for wish in $wishes; do echo "--set $wish"; done)
    done < /out/groups/refused
}
refuse
snapshot refused

# Resets three links, and more: an apply of it takes a while once the channels are reduced.
long="--set eth0:rss/table=equal:8 --set eth0:channels/combined=8 --set eth0:rps/rx-*=1 --set eth0:xps/tx-*=2"
long="$long --set eth1:ring/rx=512 --set eth1:ring/tx=256 --set eth1:rps/rx-*=3 --set eth2:ring/rx=512 --set eth2:ring/tx=512"
last=/sys/class/net/eth0/queues/rx-8

# Its terminal closes while it waits for confirmation.
unconfirmed() {
    set -f
    script -qec "udpath apply $long --confirm 3s 2>&1; sleep 100" /dev/null > /tmp/terminal 2>&1 &
    terminal=$!
    awaited grep -q -e unless -e udpath: /tmp/terminal
    kill -9 $terminal
    cat /tmp/terminal
}
step unconfirmed unconfirmed
step unconfirmed-is ethtool -l eth0
reverted() {
    udpath status | grep -q "reverted: "
}
awaited reverted
snapshot unconfirmed-reverted

# Killed as soon as the queues are gone.
killed() {
    set -f
    # shellcheck disable=SC2086
    udpath apply $long > /dev/null 2>&1 &
    applying=$!
    awaited test ! -e $last
    kill -9 $applying
    wait $applying
    echo $?
}
step killed killed
step killed-is ethtool -l eth0
step killed-again udpath apply --set eth0:rps/rx-0=1
step killed-undo udpath undo
snapshot killed-restored

# irqbalance scans every second here. Wait for three of its rounds.
balanced() {
    mkdir -p /run/irqbalance
    irqbalance --foreground --interval=1 > /tmp/irqbalance 2>&1 &
    echo $! > /tmp/irqbalance.pid
    awaited test -S /run/irqbalance/irqbalance$!.sock
    udpath show --snapshot
}
# SIGHUP makes it place every IRQ again unless it is banned. With two CPUs to choose from it may not pick this one; it
# scans every second, so 20 s cover many of its rounds.
moves() {
    affinity=/proc/irq/$(irq_of input.3)/smp_affinity_list
    for cpu in 17 16; do
        echo $cpu > "$affinity"
        kill -HUP "$(cat /tmp/irqbalance.pid)"
        tries=0
        while [ $tries -lt 100 ]; do
            read -r now < "$affinity"
            [ "$now" = $cpu ] || { echo "$cpu -> $now"; return; }
            tries=$((tries + 1))
            sleep 0.2
        done
    done
    return 1
}
step balanced balanced
step balanced-moves moves
step balanced-plan udpath plan --set eth0:irq/rx-3=17
step balanced-apply udpath apply --set eth0:irq/rx-3=17
# As long as `moves` waits for one CPU.
stays() {
    affinity=/proc/irq/$(irq_of input.3)/smp_affinity_list
    kill -HUP "$(cat /tmp/irqbalance.pid)"
    tries=0
    while [ $tries -lt 100 ]; do
        read -r now < "$affinity"
        [ "$now" = 17 ] || { echo "17 -> $now"; return 1; }
        tries=$((tries + 1))
        sleep 0.2
    done
    echo "$now"
}
step balanced-stays stays
step balanced-undo udpath undo
step balanced-let-go udpath plan --set eth0:irq/rx-3=17
# The control: what left it alone was the ban.
step balanced-moves-again moves
