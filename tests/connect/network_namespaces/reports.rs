//! Configuration files and routes of a machine, in a network namespace of its own.

use std::process::Command;

use super::common::Namespace;

/// The setups: a shell command that prepares the files, the URL, and the problems that the report finds.
const SETUPS: [(&str, &str, &str); 7] = [
    ("rm /etc/resolv.conf", "http://api.test/", "[ResolvConfUnreadable]"),
    ("echo > /etc/resolv.conf", "http://api.test/", "[NoDnsServer]"),
    ("echo nameserver one > /etc/resolv.conf", "http://192.0.2.1/", "[AddressWithoutRoute]"),
    ("echo '127.0.0.1 api.test' > /etc/hosts", "http://api.test:1/", "[AddressRefuses]"),
    (
        "printf 'search -x\\n' > /etc/resolv.conf; echo '127.0.0.1 api.test' > /etc/hosts",
        "http://api.test:1/",
        "[ResolvConfWord, AddressRefuses]",
    ),
    ("export http_proxy=ftp://me:secret@proxy.test", "http://192.0.2.1/", "[ProxyInvalid]"),
    ("export http_proxy=http://me:secret@127.0.0.1:1", "http://192.0.2.1/", "[ProxyUnreachable]"),
];

#[test]
fn files_and_routes_of_this_machine_are_named() {
    let thread = std::thread::spawn(|| {
        let Ok(namespace) = Namespace::enter("doctor") else {
            eprintln!("SKIPPED: no network namespace can be made");
            return;
        };
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.is_ok_and(|status| status.success()));
        for (prepare, url, expected) in SETUPS {
            let Some(found) = examine_in(&namespace.name, prepare, url) else {
                eprintln!("SKIPPED: /etc cannot be replaced in a namespace");
                return;
            };
            assert_eq!(found, expected, "{prepare}, {url}");
        }
    });
    thread.join().unwrap();
}

/// Returns the problems that a client finds in a namespace, with an /etc of its own. Returns `None` if none can be mounted.
fn examine_in(namespace: &str, prepare: &str, url: &str) -> Option<String> {
    let test = support::test_path(module_path!(), "a_given_origin_is_examined");
    let script = format!(
        "mount -t tmpfs none /etc || exit 77; echo nameserver 127.0.0.1 > /etc/resolv.conf; {prepare}; \
         exec \"$0\" --exact {test} --nocapture"
    );
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "sh", "-c", &script]).arg(std::env::current_exe().unwrap());
    for variable in ["http_proxy", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"] {
        command.env_remove(variable);
    }
    let output = command.env("SPEEDDIAL_EXAMINE", url).output().unwrap();
    if output.status.code() == Some(77) {
        return None;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("secret"), "{text}");
    let found = text.lines().find_map(|line| line.strip_prefix("problems: ").map(str::to_owned));
    Some(found.unwrap_or_else(|| panic!("no problems in {text}{}", String::from_utf8_lossy(&output.stderr))))
}

/// The test above runs this one in its namespace. Without that it has no URL and passes.
#[test]
fn a_given_origin_is_examined() {
    let Ok(url) = std::env::var("SPEEDDIAL_EXAMINE") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = speeddial::Client::builder().build().unwrap();
    let report = runtime.block_on(client.doctor(url)).unwrap();
    let problems: Vec<_> = report.findings.iter().map(|finding| finding.problem).collect();
    println!("\nproblems: {problems:?}\n{report}");
}
