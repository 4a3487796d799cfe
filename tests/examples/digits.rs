//! Softmax regression on handwritten digits, data-parallel: the Rust ranks of the demo.
//!
//! `tests/demo/digits.py` is the same program in Python, and ranks of both stand in one group.
//! Every rank computes the gradient of its share of a batch; allreduce adds the shares; every rank
//! takes the same step from the same sum, so that all hold the same weights to the last bit.

use std::error::Error;
use std::process::ExitCode;

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::{ProcessGroup, ReduceOp};

/// The pixels of an image, and a one for the bias.
const INPUTS: usize = 65;
const CLASSES: usize = 10;
const EPOCHS: usize = 40;
const BATCH: usize = 256;
const LEARNING_RATE: f64 = 0.5;
const ACCURACY_WANTED: f64 = 0.93;
const DIFFERENCE_ALLOWED: f64 = 1e-6;

struct Image {
    inputs: [f64; INPUTS],
    digit: usize,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let group = init_process_group(InitOptions::default())?;
    let (rank, size) = (group.rank(), group.size());
    let (images, tests) = load()?;
    let show = |epoch: usize, loss: f64| {
        if rank == 0 {
            println!("epoch {epoch:2}: loss {loss:.15}");
        }
    };
    let add_up = |total: &mut Vec<f64>| group.allreduce(total, ReduceOp::Sum);
    let (weights, loss) = train(&images, rank, size, add_up, show)?;
    let read_right = accuracy(&group, &weights, &tests)?;
    let same = is_same_everywhere(&group, &weights)?;
    println!(
        "Rust rank {rank} of {size}: loss {loss:.15}, test accuracy {read_right:.4}, \
         weights {:016x}",
        fingerprint(&weights)
    );
    // What every rank says stands before what rank 0 says about all.
    group.barrier(())?;
    let mut good = same && read_right >= ACCURACY_WANTED;
    if rank == 0 {
        let (alone, _) = train(&images, 0, 1, |_| polyrank::Result::Ok(()), |_, _| {})?;
        let differences = weights.iter().zip(&alone).map(|(ours, theirs)| (ours - theirs).abs());
        let difference = differences.fold(0.0, f64::max);
        good = good && difference <= DIFFERENCE_ALLOWED;
        let same = if same { "the same bits" } else { "DIFFERENT" };
        println!("weights are {same} on all {size} ranks");
        println!("largest difference to a single process: {difference:.3e}");
    }
    destroy_process_group(None)?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The images for training and for testing; every fifth is for testing.
fn load() -> Result<(Vec<Image>, Vec<Image>), Box<dyn Error>> {
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

/// The weights (input by class) and the last epoch's mean loss. `add_up` sums a vector over the
/// ranks, in place; `show` is told the mean loss of each epoch.
fn train(
    images: &[Image],
    rank: u32,
    size: u32,
    add_up: impl Fn(&mut Vec<f64>) -> polyrank::Result<()>,
    show: impl Fn(usize, f64),
) -> polyrank::Result<(Vec<f64>, f64)> {
    let mut weights = vec![0.0; INPUTS * CLASSES];
    let mut mean_loss = 0.0;
    for epoch in 1..=EPOCHS {
        let mut loss = 0.0;
        for batch in images.chunks(BATCH) {
            let mine = batch.iter().skip(rank as usize).step_by(size as usize);
            let mut total = gradient(&weights, mine);
            add_up(&mut total)?;
            // Two operations per element, the same in both languages: no rounding differs.
            let step = LEARNING_RATE / batch.len() as f64;
            for (weight, slope) in weights.iter_mut().zip(&total) {
                *weight -= step * slope;
            }
            loss += total[INPUTS * CLASSES];
        }
        mean_loss = loss / images.len() as f64;
        show(epoch, mean_loss);
    }
    Ok((weights, mean_loss))
}

/// The sum over the images of the gradient, with the sum of the losses behind it.
fn gradient<'a>(weights: &[f64], images: impl Iterator<Item = &'a Image>) -> Vec<f64> {
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
    total
}

/// How much the image looks like each digit.
fn scores(weights: &[f64], image: &Image) -> [f64; CLASSES] {
    let mut scores = [0.0; CLASSES];
    for (input, row) in image.inputs.iter().zip(weights.chunks_exact(CLASSES)) {
        for (score, weight) in scores.iter_mut().zip(row) {
            *score += input * weight;
        }
    }
    scores
}

/// The share of images that are read right, counted by all ranks together.
fn accuracy(group: &ProcessGroup, weights: &[f64], images: &[Image]) -> polyrank::Result<f64> {
    let reads_right = |image: &&Image| {
        let scores = scores(weights, image);
        let best = (0..CLASSES).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        best == Some(image.digit)
    };
    let mine = images.iter().skip(group.rank() as usize).step_by(group.size() as usize);
    let mut right = vec![mine.filter(reads_right).count() as i64];
    group.allreduce(&mut right, ReduceOp::Sum)?;
    Ok(right[0] as f64 / images.len() as f64)
}

/// Whether every rank holds these bits: their smallest and largest pattern are then equal.
fn is_same_everywhere(group: &ProcessGroup, weights: &[f64]) -> polyrank::Result<bool> {
    let mut smallest: Vec<u64> = weights.iter().map(|weight| weight.to_bits()).collect();
    let mut largest = smallest.clone();
    group.allreduce(&mut smallest, ReduceOp::Min)?;
    group.allreduce(&mut largest, ReduceOp::Max)?;
    Ok(smallest == largest)
}

/// FNV-1a of the weights' bytes, to be compared by eye.
fn fingerprint(weights: &[f64]) -> u64 {
    let bytes = weights.iter().flat_map(|weight| weight.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |value, byte| {
        (value ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
