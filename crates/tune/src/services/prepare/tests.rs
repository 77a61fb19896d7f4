use super::*;

#[test]
fn requests_name_a_port_or_a_process() {
    let knob = Some(("server-count".to_owned(), "2".to_owned()));
    assert_eq!(
        Request::parse("service:53:server-count=2").unwrap(),
        Some(Request { target: Target::Port(53), knob: knob.clone() })
    );
    assert_eq!(
        Request::parse("service:pid/812: server-count = 2").unwrap(),
        Some(Request { target: Target::Process(812), knob })
    );
    assert_eq!(Request::parse("eth0:rps/rx-0=3").unwrap(), None);
    let knob = Some(("listen-xdp".to_owned(), "eth0.5@53".to_owned()));
    let request = Request::parse("service:53:listen-xdp=eth0.5@53").unwrap();
    assert_eq!(request, Some(Request { target: Target::Port(53), knob }));
    for bad in [
        "service:53",
        "service:53:server-count",
        "service:70000:a=1",
        "service:0:a=1",
        "service:pid/x:a=1",
        "service:53:a=1\nroot: yes",
        "service:53:a=",
        "service:53:a b=1",
    ] {
        let said = Request::parse(bad).unwrap_err().to_string();
        assert!(said.contains("service:53:server-count=2"), "{bad}: {said}");
    }
    assert!(Request::all("pid/7").is_ok() && Request::all("53").is_ok() && Request::all("dns").is_err());
}
