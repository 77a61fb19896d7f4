//! A plot of values in order, in Braille dots: two columns and four rows of dots per character.
//!
//! ```text
//! 102 k ┤⠂⠐ ⠄    ┊        the value of the upper edge, of the lower edge
//!       │  ⠂⡀⠂⠁  ┊        a dot per value; ┊ before the first value of a new level
//!  88 k ┤        ┊⠄⠂⡀⠐
//! ```

/// Rows of characters. More: the plot pushes its table off the screen; fewer: 1 % of a step of 5 % is not visible.
const ROWS: usize = 8;
/// Dots of a character, across and up (Unicode, U+2800).
const ACROSS: usize = 2;
const UP: usize = 4;
/// The bit of each dot of a character, by column, from the top.
const BITS: [[u8; UP]; ACROSS] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
/// Fewest columns of a plot: narrower ones show nothing.
const NARROWEST: usize = 10;
/// Columns of the labels at the axis: a number of three digits, and a unit.
const LABEL: usize = 7;

/// Draws `values`, which are finite, across at most `width` columns, with `marks` before the values of these indices.
/// The newest values are drawn if there are more than dots. `label` formats the values at the axis.
pub(super) fn draw(values: &[f64], marks: &[usize], width: usize, label: impl Fn(f64) -> String) -> String {
    let columns = width.saturating_sub(LABEL + 2).max(NARROWEST);
    let dots = columns * ACROSS;
    let skipped = values.len().saturating_sub(dots);
    let shown = &values[skipped..];
    let (lowest, highest) = shown.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
    if shown.len() < 2 || !(highest - lowest).is_finite() {
        return String::new();
    }
    // Equal values are a line in the middle.
    let room = if highest > lowest { (highest - lowest) * 0.05 } else { lowest.abs().max(1.0) * 0.05 };
    let (low, high) = (lowest - room, highest + room);
    // Room between few values, so that a series of ten is not a spot at the left edge.
    let step = (dots / shown.len()).clamp(1, 2 * ACROSS);
    let mut cells = vec![vec![0_u8; columns]; ROWS];
    for (at, value) in shown.iter().enumerate() {
        let (x, y) = (at * step, (high - value) / (high - low) * (ROWS * UP) as f64);
        let y = (y as usize).min(ROWS * UP - 1);
        if let Some(cell) = cells[y / UP].get_mut(x / ACROSS) {
            *cell |= BITS[x % ACROSS][y % UP];
        }
    }
    let marked: Vec<usize> =
        marks.iter().filter_map(|at| Some(at.checked_sub(skipped)? * step / ACROSS)).collect();
    let mut out = String::new();
    for (row, cells) in cells.iter().enumerate() {
        let (label, edge) = match row {
            0 => (label(high), '┤'),
            row if row == ROWS - 1 => (label(low), '┤'),
            _ => (String::new(), '│'),
        };
        let mut line = format!("{label:>LABEL$} {edge}");
        for (column, cell) in cells.iter().enumerate() {
            line.push(match cell {
                0 if marked.contains(&column) => '┊',
                0 => ' ',
                dots => char::from_u32(0x2800 + u32::from(*dots)).unwrap_or(' '),
            });
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(value: f64) -> String {
        format!("{value:.1}")
    }

    #[test]
    fn a_step_is_marked_between_its_levels() {
        let values = [2.0, 2.0, 2.0, 1.0, 1.0, 1.0];
        let plot = draw(&values, &[3], 30, label);
        let lines: Vec<&str> = plot.lines().collect();
        assert_eq!(lines.len(), ROWS);
        assert!(lines[0].starts_with("    2.0 ┤⠂"), "{plot}");
        assert!(lines[ROWS - 1].starts_with("    0.9 ┤"), "{plot}");
        // Three values on each side: six dots, two columns apart.
        assert_eq!(plot.chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count(), 6, "{plot}");
        assert!(lines[3].ends_with('┊'), "{plot}");
        assert!(lines.iter().all(|line| line.chars().count() <= 30), "{plot}");
    }

    #[test]
    fn many_values_are_drawn_from_the_newest_on() {
        let values: Vec<f64> = (0..1000).map(f64::from).collect();
        let plot = draw(&values, &[10, 995], 40, label);
        assert!(plot.lines().next().unwrap().starts_with(" 1002."), "{plot}");
        assert!(plot.lines().all(|line| line.chars().count() <= 40), "{plot}");
        assert!(plot.contains('┊'), "{plot}");
    }

    #[test]
    fn nothing_and_equal_values() {
        assert_eq!(draw(&[], &[], 80, label), "");
        assert_eq!(draw(&[1.0], &[], 80, label), "");
        assert_eq!(draw(&[f64::MIN, f64::MAX], &[], 80, label), "");
        let plot = draw(&[5.0; 8], &[], 0, label);
        assert!(plot.lines().nth(ROWS / 2).unwrap().chars().count() > 2, "{plot}");
    }
}
