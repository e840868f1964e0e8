//! Stand-ins for the node's own tools that keep a state in `$STATE`, write down what they were asked, and refuse what the real
//! ones refuse.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Says what Proxmox VE's own `pveum` says; its state is one file for each thing there is.
const PVEUM: &str = r#"#!/bin/sh
echo "pveum $*" >> "$STATE/calls"
list() { # directory, format
  comma=; printf '['
  for f in "$STATE/$1"/*; do
    [ -e "$f" ] || continue
    printf "$comma$2" "$(basename "$f")" "$(cat "$f")"; comma=,
  done
  echo ']'
}
no() { echo "$*" >&2; exit 255; }
case "$1 $2 $3" in
"user list "*) list users '{"userid":"%s","enable":1,"comment":"%s"}' ;;
"role list "*) list roles '{"roleid":"%s","privs":"%s","special":0}' ;;
"acl list "*)
  comma=; printf '['
  for f in "$STATE"/acl/*; do
    [ -e "$f" ] || continue
    printf '%s{"path":"/","propagate":1,"type":"user","ugid":"%s","roleid":"%s"}' "$comma" "$(basename "$f")" "$(cat "$f")"
    comma=,
  done
  echo ']' ;;
"user token list") [ -e "$STATE/users/$4" ] || no "no such user ('$4')"; list tokens '{"tokenid":"%s","privsep":%s,"expire":0}' ;;
"user token add")
  [ -e "$STATE/tokens/$5" ] && no "Token already exists."
  printf 1 > "$STATE/tokens/$5"
  echo '{"full-tokenid":"'"$4!$5"'","info":{"privsep":"1"},"value":"11111111-2222-4333-8444-555555555555"}' ;;
"user token modify") printf 1 > "$STATE/tokens/$5" ;;
"user token remove") rm "$STATE/tokens/$5" || no "no such token" ;;
"user add "*) [ -e "$STATE/users/$3" ] && no "create user failed: user '$3' already exists"; : > "$STATE/users/$3" ;;
"user delete "*) rm "$STATE/users/$3" || no "no such user" ;;
"role add "*)
  [ -e "$STATE/broken" ] && no "create role failed: cfs-lock 'file-user_cfg' error: got lock request timeout"
  [ -e "$STATE/roles/$3" ] && no "create role failed: role '$3' already exists"; printf %s "$5" > "$STATE/roles/$3" ;;
"role modify "*) [ -e "$STATE/roles/$3" ] || no "role '$3' does not exist"; printf %s "$5" > "$STATE/roles/$3" ;;
"role delete "*) rm "$STATE/roles/$3" || no "role '$3' does not exist" ;;
"acl modify "*)
  [ -e "$STATE/roles/$9" ] || no "role '$9' does not exist"
  [ -e "$STATE/users/$5" ] || no "user '$5' does not exist"
  printf %s "$9" > "$STATE/acl/$5"; printf %s "$9" > "$STATE/acl/$7" ;;
"acl delete "*) rm "$STATE/acl/$5" "$STATE/acl/$7" ;;
*) no "unknown command '$*'" ;;
esac
"#;

const SYSTEMCTL: &str = r#"#!/bin/sh
echo "systemctl $*" >> "$STATE/calls"
case "$1" in
cat) exit 0 ;;
is-enabled|is-active) [ -e "$STATE/enabled" ] ;;
enable) : > "$STATE/enabled" ;;
disable) rm "$STATE/enabled" ;;
restart) [ -e "$STATE/enabled" ] ;;
*) exit 1 ;;
esac
"#;

const PVESH: &str =
    "#!/bin/sh\necho '{\"release\":\"8.4\",\"version\":\"8.4.1\",\"repoid\":\"x\"}'\n";

/// Prints a fingerprint, as `openssl x509 -fingerprint` does.
pub(crate) const OPENSSL: &str = "#!/bin/sh\necho \"sha256 Fingerprint=$(printf 'AB:%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)AB\"\n";

/// Puts the tools into a directory.
pub(crate) fn install(directory: &Path, openssl: &str) {
    std::fs::create_dir_all(directory).unwrap();
    for (name, text) in
        [("pveum", PVEUM), ("systemctl", SYSTEMCTL), ("pvesh", PVESH), ("openssl", openssl)]
    {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}
