//! Numbers to places on an axis, and where its marks stand. Knows nothing of SVG.

/// How an axis divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Equal distances for equal differences, from 0.
    Linear,
    /// Equal distances for equal quotients; marks at powers of ten.
    Decades,
    /// As [`Scale::Decades`], with marks at powers of two.
    Octaves,
}

/// An axis laid onto a stretch of the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Places of `low` and `high`.
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis that holds all `values`; those that a logarithm cannot show are left out.
    pub(super) fn new(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let can_show = |value: &f64| match scale {
            Scale::Linear => value.is_finite(),
            _ => value.is_finite() && *value > 0.0,
        };
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(can_show) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 1.0);
        }
        match scale {
            Scale::Linear => {
                low = low.min(0.0);
                high = if high > low { high * 1.05 } else { low + 1.0 };
            }
            Scale::Decades => {
                low = 10f64.powf(low.log10().floor());
                high = 10f64.powf(high.log10().ceil());
                high = high.max(low * 10.0);
            }
            Scale::Octaves => high = high.max(low * 2.0),
        }
        Axis { scale, low, high, from, to }
    }

    /// Where a value stands; none where it cannot stand on this axis.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            _ if value <= 0.0 => return None,
            _ => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        share.is_finite().then_some(self.from + share * (self.to - self.from))
    }

    /// About as many round values as `count`.
    pub(super) fn marks(&self, count: usize) -> Vec<f64> {
        let base: f64 = match self.scale {
            Scale::Linear => return self.linear_marks(count),
            Scale::Decades => 10.0,
            Scale::Octaves => 2.0,
        };
        // A little less and a little more, against rounding.
        let first = (self.low.log(base) - 1e-9).ceil() as i32;
        let last = (self.high.log(base) + 1e-9).floor() as i32;
        let step = ((last - first) as usize).div_ceil(count.max(1)).max(1);
        (first..=last).step_by(step).map(|power| base.powi(power)).collect()
    }

    fn linear_marks(&self, count: usize) -> Vec<f64> {
        let least = (self.high - self.low) / count.max(1) as f64;
        let power = 10f64.powf(least.log10().floor());
        let nice = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
        let step = nice.into_iter().find(|step| *step >= least * 0.999).unwrap_or(least);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|number| number as f64 * step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale, values: &[f64]) -> Axis {
        Axis::new(scale, values.iter().copied(), 0.0, 100.0)
    }

    #[test]
    fn linear_axes_begin_at_0() {
        let axis = axis(Scale::Linear, &[2.0, 10.0]);
        assert_eq!((axis.place(0.0), axis.place(10.5)), (Some(0.0), Some(100.0)));
        assert_eq!(axis.marks(5), [0.0, 5.0, 10.0]);
        assert_eq!(axis.marks(10), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
    }

    #[test]
    fn logarithmic_axes_have_marks_at_powers() {
        let decades = axis(Scale::Decades, &[2.0, 150.0]);
        assert_eq!((decades.place(1.0), decades.place(1000.0)), (Some(0.0), Some(100.0)));
        assert_eq!(decades.marks(8).len(), 4);
        let octaves = axis(Scale::Octaves, &[4.0, 67_108_864.0]);
        assert_eq!(octaves.place(4.0), Some(0.0));
        assert_eq!(octaves.marks(6)[..3], [4.0, 64.0, 1024.0]);
        assert_eq!(octaves.place(0.0), None);
    }

    #[test]
    fn an_axis_of_nothing_or_of_one_value_is_an_axis() {
        for scale in [Scale::Linear, Scale::Decades, Scale::Octaves] {
            for values in [&[][..], &[0.0], &[7.0], &[f64::NAN, 3.0]] {
                let axis = axis(scale, values);
                assert!(axis.place(1.0).is_some() && !axis.marks(5).is_empty(), "{scale:?}");
            }
        }
    }
}
