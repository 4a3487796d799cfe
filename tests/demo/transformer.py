"""A small transformer that predicts the next byte, and Adam, in NumPy: forwards, and backwards by
hand. Pre-norm blocks of causal attention and a ReLU network; the output layer is the embedding's
transpose.
"""

import numpy as np


def parameters_of(rng, width, layers, context, dtype=np.float32):
    """By name. `width` is that of the residual stream; there are 256 bytes."""
    def normal(*shape, scale):
        return (rng.standard_normal(shape) * scale).astype(dtype)

    parameters = {
        "embedding": normal(256, width, scale=0.02),
        "position": normal(context, width, scale=0.02),
        "norm": np.ones(width, dtype),
    }
    for layer in range(layers):
        narrow = 0.02 / np.sqrt(2 * layers)
        parameters |= {
            f"{layer}.norm1": np.ones(width, dtype),
            f"{layer}.qkv": normal(width, 3 * width, scale=0.02),
            f"{layer}.out": normal(width, width, scale=narrow),
            f"{layer}.norm2": np.ones(width, dtype),
            f"{layer}.up": normal(width, 4 * width, scale=0.02),
            f"{layer}.down": normal(4 * width, width, scale=narrow),
        }
    return parameters


def normalized(x, scale):
    """RMS norm, and what its way back needs."""
    inverse = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(1e-6))
    return x * inverse * scale, (x, inverse, scale)


def normalized_back(change, kept):
    """The gradients of the input and of the scale."""
    x, inverse, scale = kept
    flat = (change * x * inverse).reshape(-1, x.shape[-1])
    change = change * scale
    mean = (change * x).mean(axis=-1, keepdims=True)
    return inverse * (change - x * inverse * inverse * mean), flat.sum(axis=0)


def split(x, heads):
    """(batch, time, width) as (batch, head, time, part)."""
    batch, time, width = x.shape
    return x.reshape(batch, time, heads, width // heads).transpose(0, 2, 1, 3)


def joined(x):
    """Back from `split`."""
    batch, heads, time, part = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, time, heads * part)


def attention(qkv, heads):
    """Each place sees those before it, and itself."""
    query, key, value = (split(part, heads) for part in np.split(qkv, 3, axis=-1))
    factor = qkv.dtype.type(query.shape[-1] ** -0.5)
    scores = query @ key.transpose(0, 1, 3, 2) * factor
    time = scores.shape[-1]
    scores += np.triu(np.full((time, time), -1e9, qkv.dtype), 1)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return joined(scores @ value), (query, key, value, scores, factor)


def attention_back(change, kept):
    """The gradient of `qkv`."""
    query, key, value, weights, factor = kept
    change = split(change, query.shape[1])
    of_value = weights.transpose(0, 1, 3, 2) @ change
    of_weights = change @ value.transpose(0, 1, 3, 2)
    inner = (of_weights * weights).sum(axis=-1, keepdims=True)
    of_scores = weights * (of_weights - inner) * factor
    parts = (of_scores @ key, of_scores.transpose(0, 1, 3, 2) @ query, of_value)
    return np.concatenate([joined(part) for part in parts], axis=-1)


def flat(x):
    """All places one after the other, as matrices are multiplied fastest."""
    return x.reshape(-1, x.shape[-1])


def loss_and_gradients(parameters, tokens, heads, wants_gradients=True):
    """The mean loss of the bytes after the first of each row, in nats, and the gradients."""
    given, wanted = tokens[:, :-1], tokens[:, 1:]
    x = parameters["embedding"][given] + parameters["position"][: given.shape[1]]
    layers, kept = sum(name.endswith(".qkv") for name in parameters), []
    for layer in range(layers):
        of = {name: parameters[f"{layer}.{name}"] for name in ("qkv", "out", "up", "down")}
        first, norm1 = normalized(x, parameters[f"{layer}.norm1"])
        seen, attended = attention(first @ of["qkv"], heads)
        x = x + seen @ of["out"]
        second, norm2 = normalized(x, parameters[f"{layer}.norm2"])
        hidden = np.maximum(second @ of["up"], 0)
        x = x + hidden @ of["down"]
        kept.append((of, first, norm1, seen, attended, second, norm2, hidden))
    last, norm = normalized(x, parameters["norm"])
    scores = flat(last) @ parameters["embedding"].T
    scores -= scores.max(axis=1, keepdims=True)
    exponentials = np.exp(scores)
    totals = exponentials.sum(axis=1, keepdims=True)
    places, targets = np.arange(len(scores)), wanted.reshape(-1)
    loss = float((np.log(totals[:, 0]) - scores[places, targets]).mean())
    if not wants_gradients:
        return loss, {}
    errors = exponentials / totals
    errors[places, targets] -= 1
    errors /= len(errors)
    return loss, backwards(parameters, given, kept, (last, norm, errors))


def backwards(parameters, given, kept, end):
    """All gradients, from the last layer to the first."""
    last, norm, errors = end
    gradients = {"embedding": errors.T @ flat(last)}
    change = (errors @ parameters["embedding"]).reshape(last.shape)
    change, gradients["norm"] = normalized_back(change, norm)
    for layer in reversed(range(len(kept))):
        of, first, norm1, seen, attended, second, norm2, hidden = kept[layer]
        found = {"down": flat(hidden).T @ flat(change)}
        of_hidden = (change @ of["down"].T) * (hidden > 0)
        found["up"] = flat(second).T @ flat(of_hidden)
        more, found["norm2"] = normalized_back(of_hidden @ of["up"].T, norm2)
        change = change + more
        found["out"] = flat(seen).T @ flat(change)
        of_qkv = attention_back(change @ of["out"].T, attended)
        found["qkv"] = flat(first).T @ flat(of_qkv)
        more, found["norm1"] = normalized_back(of_qkv @ of["qkv"].T, norm1)
        change = change + more
        gradients |= {f"{layer}.{name}": gradient for name, gradient in found.items()}
    gradients["position"] = np.zeros_like(parameters["position"])
    gradients["position"][: given.shape[1]] = change.sum(axis=0)
    np.add.at(gradients["embedding"], given.reshape(-1), flat(change))
    return gradients


class Adam:
    """Changes parameters in place."""

    def __init__(self, parameters, rate):
        self.rate, self.steps = rate, 0
        self.means = {name: np.zeros_like(it) for name, it in parameters.items()}
        self.squares = {name: np.zeros_like(it) for name, it in parameters.items()}

    def step(self, parameters, gradients):
        """One step; the first twenty are smaller."""
        self.steps += 1
        rate = self.rate * min(1, self.steps / 20)
        for name, gradient in gradients.items():
            mean, square = self.means[name], self.squares[name]
            mean += 0.1 * (gradient - mean)
            square += 0.01 * (gradient * gradient - square)
            forward = mean / (1 - 0.9**self.steps)
            spread = np.sqrt(square / (1 - 0.99**self.steps))
            parameters[name] -= rate * forward / (spread + 1e-8)
