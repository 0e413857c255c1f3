#!/usr/bin/env bash
# tools/run starts ranks by ssh and a real sshd, which listens on this machine alone, with keys, a configuration and accounts of this test.
. "$(dirname "$0")/../support/program.sh" "$RDMACORO_BUILD_ROOT/tools/run/run"
skip() {
    echo "skipped: $*"
    exit 77
}
[ -x "$program" ] || skip "this build has no tools/run"
sshd=$(PATH=$PATH:/usr/sbin:$RDMACORO_SOURCE_ROOT/build/unpacked/usr/sbin command -v sshd) ||
    skip "no sshd: tools/test unpacks it, or install openssh-server"
ssh=$(command -v ssh) || skip "no ssh: install openssh-client"
. "$(dirname "$0")/../support/jobs.sh"

for name in host user; do ssh-keygen -q -t ed25519 -N '' -f "$work/$name"; done
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$work/sshd_config" <<END
ListenAddress 127.0.0.1
Port $port
HostKey $work/host
AuthorizedKeysFile $work/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
LogLevel VERBOSE
END
# Port 1 has no listener.
cat >"$work/ssh_config" <<END
Host down
    Port 1
Host *
    HostName 127.0.0.1
    Port $port
    IdentityFile $work/user
    IdentitiesOnly yes
    BatchMode yes
    UserKnownHostsFile /dev/null
    StrictHostKeyChecking no
    LogLevel ERROR
END
cat >"$work/ssh" <<END
#!/bin/sh
echo "\$1: \$*" >>"$work/commands"
exec "$ssh" -F "$work/ssh_config" "\$@"
END
chmod +x "$work/ssh"

# listens SHELL: sshd is in $listener; the account has this shell. As root it wants an account of its own and a folder: they are in a mount
# namespace. As another user it takes the account as it is.
listens() {
    : >"$work/sshd.log"
    : >"$work/commands"
    if [ "$(id -u)" -eq 0 ]; then
        { sed "s|^\(root:.*:\)[^:]*\$|\1$1|" /etc/passwd && echo 'sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin'; } >"$work/passwd"
        sed 's/^root:[^:]*:/root:*:/' /etc/shadow >"$work/shadow"
        unshare -m --propagation private sh -ec 'mount --bind "$1/passwd" /etc/passwd; mount --bind "$1/shadow" /etc/shadow
            mount -t tmpfs none /run; mkdir -m 755 /run/sshd; exec "$0" -D -e -f "$1/sshd_config"' "$sshd" "$work" 2>"$work/sshd.log" &
    else
        "$sshd" -D -e -f "$work/sshd_config" 2>"$work/sshd.log" &
    fi
    listener=$!
    for ((n = 0; n < 100; n++)); do
        ! grep -q 'Server listening' "$work/sshd.log" || return 0
        kill -0 $listener 2>/dev/null || break
        sleep 0.1
    done
    echo "FAILED: sshd does not start: $(tail -n 3 "$work/sshd.log")"
    exit 1
}
trap 'kill "${listener-}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT

shells=${SHELL:-/bin/sh}
[ "$(id -u)" -ne 0 ] || shells='/bin/bash /bin/sh'
for shell in $shells; do
    listens "$shell"
    on_other_hosts
    accepted=$(grep -c 'Accepted publickey' "$work/sshd.log")
    [ "$accepted" -ge 19 ] || fail "only $accepted ranks came by ssh"

    # The connection of a rank is cut: it is named, the others end, and the rank itself is ended by its host.
    begins -n 2 --hosts a,b $remote bash -c "$waits"
    clients=$(pgrep -f "^$ssh -F $work/ssh_config b ")
    kill -KILL $clients
    over 137 'SIGKILL of ssh'
    says 'rank 1 on b was ended by signal 9'
    # sshd is gone with all its sessions, as where a host is shut down.
    begins -n 2 --hosts a,b $remote bash -c "$waits"
    sessions=$(pgrep -P $listener)
    kill -KILL $listener $sessions
    over 255 'SIGKILL of sshd'
    says 'rank [01] on [ab] ended with status 255'
    wait $listener 2>/dev/null || true
done
