//! Times to places: a line that is shortened after the last event, where all only wait. Knows no
//! SVG.

/// The share of the drawing that the time of waiting alone may have.
const MAX_WAITING: f64 = 0.14;

/// Times laid onto a stretch of the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) first: i64,
    /// After it, nothing begins or ends well.
    pub(super) busy: i64,
    pub(super) last: i64,
    from: f64,
    /// The place of `busy`.
    knee: f64,
    to: f64,
}

impl Scale {
    pub(super) fn new(first: i64, busy: i64, last: i64, from: f64, to: f64) -> Scale {
        let whole = (last - first).max(1) as f64;
        let waiting = (last - busy) as f64 / whole;
        let knee = to - (to - from) * waiting.min(MAX_WAITING);
        Scale { first, busy, last, from, knee, to }
    }

    /// Where a time stands.
    pub(super) fn place(&self, time: i64) -> f64 {
        let between = |time: i64, low: i64, high: i64, from: f64, to: f64| {
            let share = (time - low) as f64 / (high - low).max(1) as f64;
            from + share.clamp(0.0, 1.0) * (to - from)
        };
        if time <= self.busy {
            return between(time, self.first, self.busy, self.from, self.knee);
        }
        between(time, self.busy, self.last, self.knee, self.to)
    }

    /// Where the line is shortened, if it is.
    pub(super) fn shortened_from(&self) -> Option<f64> {
        let whole = (self.last - self.first).max(1) as f64;
        ((self.last - self.busy) as f64 / whole > MAX_WAITING).then_some(self.knee)
    }

    /// Round times after the first, in nanoseconds, about so many up to the last event.
    pub(super) fn marks(&self, count: usize) -> Vec<i64> {
        let end = if self.shortened_from().is_some() { self.busy } else { self.last };
        let span = (end - self.first).max(1);
        let least = span as f64 / count.max(1) as f64;
        let power = 10f64.powf(least.log10().floor()).max(1.0);
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
        let step = step.into_iter().find(|step| *step >= least).unwrap_or(10.0 * power) as i64;
        (0..=span / step.max(1)).map(|number| number * step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_alone_is_shortened() {
        let scale = Scale::new(0, 1_000, 1_000_000, 0.0, 100.0);
        assert_eq!(
            (scale.place(0), scale.place(1_000), scale.place(1_000_000)),
            (0.0, 86.0, 100.0)
        );
        assert_eq!(scale.shortened_from(), Some(86.0));
        assert_eq!(scale.marks(5), [0, 200, 400, 600, 800, 1_000]);
        let even = Scale::new(0, 950, 1_000, 0.0, 100.0);
        assert_eq!((even.place(950), even.place(975), even.shortened_from()), (95.0, 97.5, None));
    }

    #[test]
    fn nothing_has_a_scale_too() {
        let scale = Scale::new(5, 5, 5, 0.0, 100.0);
        assert!(scale.place(5).is_finite() && scale.marks(5).len() < 3);
    }
}
