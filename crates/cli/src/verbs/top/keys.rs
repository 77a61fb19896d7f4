//! The effect of each key.

use udpath_report::top::{State, View};

use super::input::Key;

/// What a key requests from the event loop, beyond the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Exit.
    End,
    /// Restore the terminal and stop, as at Ctrl-Z.
    Stop,
    /// Read the machine again and redraw the whole screen.
    Anew,
}

/// Longest filter, in characters: longer than any name or address.
const FILTER: usize = 48;

/// Applies a key. `page`: number of lines on the screen.
pub(super) fn press(state: &mut State, key: Key, page: usize) -> Option<Action> {
    if let Key::Control(letter) = key {
        match letter {
            'c' => return Some(Action::End),
            'z' => return Some(Action::Stop),
            'l' => return Some(Action::Anew),
            'u' if state.typing => state.filter.clear(),
            _ => {}
        }
        return None;
    }
    if state.typing {
        type_filter(state, key);
        return None;
    }
    if state.help {
        // The help key, or any other, closes the help.
        state.help = false;
        return None;
    }
    let page = isize::try_from(page.max(1)).unwrap_or(isize::MAX);
    match key {
        Key::Char('q') => return Some(Action::End),
        Key::Escape if state.filter.is_empty() => return Some(Action::End),
        Key::Escape => state.filter.clear(),
        Key::Char('?' | 'h') => state.help = true,
        Key::Char(digit @ '1'..='4') => state.view = View::ALL[digit as usize - '1' as usize],
        Key::Tab => state.turn(false),
        Key::BackTab => state.turn(true),
        Key::Char('>') | Key::Right => state.order_by_next(false),
        Key::Char('<') | Key::Left => state.order_by_next(true),
        Key::Char('r') => state.reverse(),
        Key::Char('/') => state.typing = true,
        Key::Char(' ' | 'p') => state.paused = !state.paused,
        Key::Char('+') => state.pace(true),
        Key::Char('-') => state.pace(false),
        Key::Down | Key::Char('j') => state.scroll(1),
        Key::Up | Key::Char('k') => state.scroll(-1),
        Key::PageDown => state.scroll(page),
        Key::PageUp => state.scroll(-page),
        Key::Home => state.scroll(isize::MIN),
        Key::End => state.scroll(isize::MAX),
        _ => {}
    }
    None
}

fn type_filter(state: &mut State, key: Key) {
    match key {
        Key::Enter => state.typing = false,
        Key::Escape => {
            state.typing = false;
            state.filter.clear();
        }
        Key::Backspace => {
            state.filter.pop();
        }
        Key::Char(c) if state.filter.chars().count() < FILTER => state.filter.push(c),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn state() -> State {
        State::new(Duration::from_secs(1))
    }

    fn after(keys: &[Key]) -> State {
        let mut state = state();
        for key in keys {
            assert_eq!(press(&mut state, *key, 10), None, "{key:?}");
        }
        state
    }

    fn typed(text: &str) -> State {
        after(&text.chars().map(Key::Char).collect::<Vec<_>>())
    }

    fn control(state: &mut State, key: char) -> Option<Action> {
        press(state, Key::Control(key), 10)
    }

    #[test]
    fn q_escape_and_control_c_end_it() {
        for key in [Key::Char('q'), Key::Escape] {
            assert_eq!(press(&mut state(), key, 10), Some(Action::End));
        }
        assert_eq!(control(&mut state(), 'c'), Some(Action::End));
        // Also where other keys are text or close the help.
        assert_eq!(control(&mut typed("/q"), 'c'), Some(Action::End));
        assert_eq!(control(&mut typed("?"), 'c'), Some(Action::End));
    }

    #[test]
    fn control_z_stops_it_and_control_l_redraws() {
        assert_eq!(control(&mut state(), 'z'), Some(Action::Stop));
        assert_eq!(control(&mut state(), 'l'), Some(Action::Anew));
        assert_eq!(control(&mut state(), 'x'), None);
    }

    #[test]
    fn each_view_has_a_key_and_tab_goes_round() {
        for (key, view) in
            [('1', View::Overview), ('2', View::Cpus), ('3', View::Queues), ('4', View::Sockets)]
        {
            assert_eq!(typed(&key.to_string()).view, view);
        }
        assert_eq!(after(&[Key::Tab]).view, View::Cpus);
        assert_eq!(after(&[Key::Tab; 4]).view, View::Overview);
        assert_eq!(after(&[Key::BackTab]).view, View::Sockets);
    }

    #[test]
    fn the_order_goes_through_all_columns_and_round() {
        let begin = typed("2");
        assert_ne!(typed("2>"), begin);
        assert_eq!(typed("2><"), begin);
        assert_eq!(after(&[Key::Char('2'), Key::Right, Key::Left]), begin);
        assert_ne!(typed("2r"), begin);
        assert_eq!(typed("2rr"), begin);
        // A new column starts in its own direction.
        assert_eq!(typed("2r><"), begin);
        // The overview has no sort order.
        assert_eq!(typed("><"), state());
    }

    #[test]
    fn a_filter_is_typed_kept_and_cleared() {
        let typing = typed("/eth0 q?");
        assert_eq!((typing.filter.as_str(), typing.typing, typing.view), ("eth0 q?", true, View::Overview));
        let mut kept = typed("/ab");
        press(&mut kept, Key::Backspace, 10);
        press(&mut kept, Key::Enter, 10);
        assert_eq!((kept.filter.as_str(), kept.typing), ("a", false));
        // Escape clears the filter first, and exits only then.
        assert_eq!(press(&mut kept, Key::Escape, 10), None);
        assert_eq!(kept, state());
        assert_eq!(press(&mut kept, Key::Escape, 10), Some(Action::End));
        let mut cleared = typed("/ab");
        assert_eq!(control(&mut cleared, 'u'), None);
        assert_eq!((cleared.filter.as_str(), cleared.typing), ("", true));
        assert_eq!(typed(&format!("/{}", "x".repeat(100))).filter.len(), FILTER);
    }

    #[test]
    fn space_and_p_pause_and_go_on() {
        assert!(typed(" ").paused && typed("p").paused);
        assert!(!typed("  ").paused);
    }

    #[test]
    fn the_help_comes_and_any_key_takes_it_away() {
        assert!(typed("?").help && typed("h").help);
        // The key does nothing else: q does not exit.
        assert_eq!(typed("?q"), state());
    }

    #[test]
    fn plus_and_minus_step_through_intervals() {
        assert_eq!(typed("+").interval, Duration::from_secs(2));
        assert_eq!(typed("-").interval, Duration::from_millis(500));
        assert_eq!(typed(&"+".repeat(20)).interval, Duration::from_secs(60));
        assert_eq!(typed(&"-".repeat(20)).interval, Duration::from_millis(100));
        let mut odd = State::new(Duration::from_millis(700));
        press(&mut odd, Key::Char('+'), 10);
        assert_eq!(odd.interval, Duration::from_secs(1));
    }

    #[test]
    fn scrolling_stays_within_the_content() {
        let place = |keys: &[Key]| {
            let mut state = after(keys);
            state.settle(100, 10);
            state.first()
        };
        assert_eq!(place(&[Key::Down, Key::Char('j'), Key::Up]), 1);
        assert_eq!(place(&[Key::Char('k')]), 0);
        assert_eq!(place(&[Key::PageDown, Key::PageDown, Key::PageUp]), 10);
        assert_eq!(place(&[Key::End]), 90);
        assert_eq!(place(&[Key::End, Key::Home]), 0);
        // Each view has its own position.
        assert_eq!(place(&[Key::Down, Key::Tab]), 0);
    }
}
