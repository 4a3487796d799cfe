//! Handwritten digits, and softmax regression on them, for programs that train together. Knows no
//! group.

use std::error::Error;

/// The pixels of an image, and a one for the bias.
pub const INPUTS: usize = 65;
/// The ten digits.
pub const CLASSES: usize = 10;

/// An image of a digit.
pub struct Image {
    /// Its pixels, from 0 to 1, and a one.
    pub inputs: [f64; INPUTS],
    /// What was written.
    pub digit: usize,
}

/// The images for training and for testing; every fifth is for testing.
///
/// # Errors
/// The file is damaged.
pub fn load() -> Result<(Vec<Image>, Vec<Image>), Box<dyn Error>> {
    let (mut training, mut testing) = (Vec::new(), Vec::new());
    for (index, line) in include_str!("../data/digits.csv").lines().enumerate() {
        let numbers = line.split(',').map(str::parse).collect::<Result<Vec<u8>, _>>()?;
        let (digit, pixels) = numbers.split_last().ok_or("an empty line in digits.csv")?;
        let mut inputs = [1.0; INPUTS];
        for (input, pixel) in inputs.iter_mut().zip(pixels) {
            *input = f64::from(*pixel) / 16.0;
        }
        let set = if index % 5 == 4 { &mut testing } else { &mut training };
        set.push(Image { inputs, digit: usize::from(*digit) });
    }
    Ok((training, testing))
}

/// The sum over the images of the gradient, with the sum of the losses after it.
///
/// Languages may round differently here: what counts is that all ranks get the same sum.
#[must_use]
pub fn gradient<'a>(weights: &[f32], images: impl Iterator<Item = &'a Image>) -> Vec<f32> {
    let mut total = vec![0.0; INPUTS * CLASSES + 1];
    for image in images {
        let mut errors = scores(weights, image);
        let largest = errors.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        errors.iter_mut().for_each(|score| *score -= largest);
        let score_of_digit = errors[image.digit];
        errors.iter_mut().for_each(|score| *score = score.exp());
        let sum: f64 = errors.iter().sum();
        total[INPUTS * CLASSES] += sum.ln() - score_of_digit;
        errors.iter_mut().for_each(|exponential| *exponential /= sum);
        errors[image.digit] -= 1.0;
        for (input, slopes) in image.inputs.iter().zip(total.chunks_exact_mut(CLASSES)) {
            for (slope, error) in slopes.iter_mut().zip(&errors) {
                *slope += input * error;
            }
        }
    }
    total.into_iter().map(|sum: f64| sum as f32).collect()
}

/// How much the image looks like each digit.
#[must_use]
pub fn scores(weights: &[f32], image: &Image) -> [f64; CLASSES] {
    let mut scores = [0.0; CLASSES];
    for (input, row) in image.inputs.iter().zip(weights.chunks_exact(CLASSES)) {
        for (score, weight) in scores.iter_mut().zip(row) {
            *score += input * f64::from(*weight);
        }
    }
    scores
}

/// FNV-1a of the weights' bytes, to be compared by eye.
#[must_use]
pub fn fingerprint(weights: &[f32]) -> u64 {
    let bytes = weights.iter().flat_map(|weight| weight.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |value, byte| {
        (value ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
