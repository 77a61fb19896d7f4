//! Who may call a fleet, and what its agents refuse.

use super::*;

/// The example of NATS' documentation: a user's public nkey, and its seed.
const USER: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

#[test]
fn agents_refuse_what_their_limits_forbid() {
    udpath_lab::needs_root!();
    let bed = Bed::new("fleet-limits", &[]);
    let mut agents = bed.agents(1);
    let other = bed.target.replace(":7", ":8");
    let load = |target: &str, more: &[&str]| {
        let fixed = ["load", "echo", target, "--fleet", &bed.server, "--gather", "1s", "--lead", "300ms"];
        started(&bed.lab, "client", program(), &[&fixed, more].concat()).finish()
    };
    // A rate that is allowed is not enough: also what is awaited, sent at once, sent in bytes, kept open, and kept in
    // memory.
    let refused: [(&str, &[&str], &str); 9] = [
        (&other, &["--rate", "100"], "--allow"),
        (&bed.target, &["--rate", "6k"], "--max-rate"),
        (&bed.target, &["--inflight", "2"], "--max-rate"),
        (&bed.target, &["--rate", "100", "-d", "61s"], "--max-time"),
        (&bed.target, &["--rate", "10", "--timeout", "10080m"], "--max-timeout"),
        (&bed.target, &["--rate", "5k", "--arrivals", "burst:20000"], "--max-rate, --max-bandwidth"),
        (&bed.target, &["--rate", "5k", "--size", "60000"], "--max-bandwidth"),
        (&bed.target, &["--rate", "100", "--flows", "60000"], "--max-flows"),
        (&bed.target, &["--rate", "100", "--flows", "1000", "--rcvbuf", "1G"], "--max-memory"),
    ];
    for (target, more, words) in refused {
        let ended = load(target, more);
        assert_eq!(ended.code(), Some(3), "{more:?}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(words), "{more:?}: {}", ended.err);
    }
    let names = load(&bed.target, &["--rate", "5k", "--warmup", "30s", "-d", "31s"]);
    assert!(names.err.contains("61 s exceed the limit of 60 s"), "{}", names.err);
    for agent in agents.values_mut() {
        assert!(!agent.has_ended());
    }
    let nobody = ["--rate", "5", "--fleet-name", "other"];
    let ended = load(&bed.target, &nobody);
    assert!(ended.err.contains("0 of 1 agents of fleet other answered"), "{}", ended.err);
}

#[test]
fn only_those_whom_the_server_knows_take_part() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name).display().to_string();
        std::fs::write(&path, text).unwrap();
        path
    };
    let users = write("nats.conf", &format!("authorization {{ users = [ {{ nkey: {USER} }} ] }}\n"));
    let (seed, damaged) = (write("seed", &format!("{SEED}\n")), write("damaged", "SUAX\n"));
    let bed = Bed::new("fleet-access", &["-c", &users]);
    // Agents are not root's, and read their keys as the user that they are.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    bed.make_results();
    let arguments = bed.agent_arguments("a00");
    let agent = |more: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        started(&bed.lab, "client", program(), &arguments)
    };
    for more in [&[][..], &["--nkey", &damaged]] {
        let ended = agent(more).finish();
        assert_eq!(ended.code(), Some(3), "{}", ended.err);
        assert!(ended.err.contains("are these its credentials"), "{}", ended.err);
    }
    let mut known = agent(&["--nkey", &seed]);
    known.says("ready for loads");
    let load = ["--rate", "50", "-d", "300ms", "--gather", "5s", "--agents", "1", "--lead", "300ms"];
    let stranger = bed.load(&load).finish();
    assert_eq!(stranger.code(), Some(3), "{}", stranger.err);
    let ended = bed.load(&[&load[..], &["--nkey", &seed]].concat()).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert_is_sum(&json(&ended), &bed.kept());
    known.says("the caller has the result");
}

#[test]
fn an_agent_gives_up_its_privileges_before_it_connects() {
    udpath_lab::needs_root!();
    let bed = Bed::new("fleet-privileges", &[]);
    let agent = |more: &[&str]| {
        let mut arguments = bed.agent_arguments("a00");
        arguments.iter_mut().filter(|argument| *argument == "5k").for_each(|rate| *rate = "none".to_owned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        started(&bed.lab, "client", program(), &arguments)
    };
    std::fs::create_dir_all(bed.results()).unwrap();
    let refused = agent(&[]).finish();
    assert_eq!(refused.code(), Some(2), "{}", refused.err);
    udpath_rig::one_sentence("cannot keep results in", &refused.err);
    bed.make_results();
    let load = [
        "load",
        "echo",
        &bed.target,
        "--fleet",
        &bed.server,
        "--engine",
        "kernel",
        "--inflight",
        "4",
        "-d",
        "300ms",
    ];
    for (more, works) in [(&[][..], false), (&["--user", "root"], true)] {
        let mut agent = agent(more);
        agent.says("ready for loads");
        let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
        let has = |line: &str| status.lines().any(|shown| shown.starts_with(line));
        assert_eq!(has("Uid:\t0\t"), works, "{status}");
        assert_eq!(has("CapPrm:\t0000000000000000"), !works, "{status}");
        assert_eq!(has("Seccomp:\t2"), !works, "{status}");
        let ended = started(&bed.lab, "client", program(), &load).finish();
        assert_eq!(ended.code() == Some(0), works, "{}{}", ended.out, ended.err);
        assert_eq!(ended.err.contains("engine kernel needs root"), !works, "{}", ended.err);
        agent.signal(Signal::TERM);
        let _ = agent.finish();
    }
}
