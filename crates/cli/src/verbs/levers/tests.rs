use super::*;

fn here(arguments: Arguments) -> Here {
    Here { port: 7, prefix: "nsenter -t 9 -n ".into(), arguments }
}

/// Of this very test: its program is the caller's.
#[test]
fn a_result_that_is_kept_has_no_arguments_of_programs() {
    let own = std::process::id();
    let program = std::env::args().next().unwrap();
    let command = |arguments| here(arguments).multiplied(own, 2).unwrap().command;
    let shown = command(Arguments::Shown);
    let begins = format!("nsenter -t 9 -n udpath multiply -n 2 --port 7 -- {}", quoted(&program));
    assert!(shown.contains(&begins), "{shown}");
    assert_eq!(command(Arguments::Hidden), "nsenter -t 9 -n udpath multiply -n 2 --port 7 -- COMMAND");
}

#[test]
fn this_program_is_known_by_its_file() {
    assert!(is_udpath(std::process::id()) && !is_udpath(1) && !is_udpath(u32::MAX));
}

#[test]
fn a_process_is_watched_by_what_started_it_unless_that_is_a_shell() {
    // By this test, which may start it again.
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    assert!(!is_watched_by_nobody(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_watched_by_nobody(u32::MAX));
    for (pid, name, once) in [
        (812, "bash", true),
        (812, "tmux: server", true),
        (1, "systemd", true),
        (1, "tini", false),
        (812, "systemd", false),
        (812, "supervisord", false),
        (812, "containerd-shim", false),
        // The parent is in another PID namespace.
        (0, "", false),
    ] {
        assert_eq!(starts_once(pid, name), once, "{pid} {name}");
    }
}

#[test]
fn a_command_has_every_consent_that_its_text_asks_for() {
    assert_eq!(consents(false), "--allow config --allow restart");
    assert_eq!(consents(true), "--allow config --allow restart --allow security");
}

#[test]
fn a_service_of_its_own_gets_another_io() {
    let of = |text: &str, arguments| {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let levers = here(arguments).of_serve(5, &words, 4, arguments);
        levers
            .into_iter()
            .map(|lever| (lever.command.replace("nsenter -t 9 -n ", ""), lever.reads))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of("udpath serve echo --io shared --bind 0.0.0.0:7", Arguments::Shown),
        [
            ("udpath serve echo --io reuseport --bind 0.0.0.0:7".to_owned(), Reads::With(4)),
            ("udpath serve echo --io xdp --bind 0.0.0.0:7".to_owned(), Reads::PastSockets)
        ]
    );
    assert_eq!(
        of("udpath serve dns --zone a", Arguments::Shown),
        [("udpath serve dns --zone a --io xdp".to_owned(), Reads::PastSockets)]
    );
    assert_eq!(of("udpath serve dns --io xdp", Arguments::Shown), []);
    assert_eq!(
        of("udpath serve dns", Arguments::Hidden),
        [("COMMAND --io xdp".to_owned(), Reads::PastSockets)]
    );
}
