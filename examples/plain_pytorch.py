"""robustda's parts in a training loop of your own: RDA by hand, from mislabelled printed digits to handwritten ones.

python examples/plain_pytorch.py
"""

import torch
from torch import nn

from robustda.curriculum import LossLedger, balanced, exam, kept_share
from robustda.data.builtin import noisy_glyphs_to_digits
from robustda.losses import proxy_margin_discrepancy, proxy_mask, weighted_risk
from robustda.nets import Adversarial, create_backbone
from robustda.noise.estimate import estimate_rates


def main(n_source: int = 2000, epochs: int = 10, steps: int = 1500, batch: int = 32) -> float:
    source, target, record = noisy_glyphs_to_digits(n_source=n_source)
    x, x_target = (torch.tensor(domain.x).permute(0, 3, 1, 2) / 255 for domain in (source, target))
    y, y_target = torch.tensor(source.y), torch.tensor(target.y)
    torch.manual_seed(0)

    # Stage 1: a plain classifier; wrong labels are those that it finds hard all along.
    network, ledger = Adversarial(create_backbone("small_cnn", (16, 16, 3)), 10, width=256), LossLedger(len(x))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            weighted_risk(network(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            ledger.add(nn.functional.cross_entropy(network.eval()(x), y, reduction="none"))
        network.train()
    found = estimate_rates(x.flatten(1).numpy(), source.y, 10)
    keep, doubted = kept_share(torch.tensor(found.rates), "authors"), torch.tensor(found.doubted)
    trusted = exam(ledger.mean, y, keep, doubted=doubted).trust.nonzero()[:, 0]
    right = 1 - record.wrong_labels[trusted.numpy()].mean()

    # Stage 2: anew on the trusted, while an adversary looks for what tells the domains apart.
    rows = balanced(trusted, y)
    network = Adversarial(create_backbone("small_cnn", (16, 16, 3)), 10, width=256)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    for step in range(steps):
        here, there = rows[torch.randint(len(rows), (batch,))], torch.randint(len(x_target), (batch,))
        features = network.features(torch.cat([x[here], x_target[there]]))
        logits, rival = network.f(features), network.adversary_logits(features, 0.1 * step / steps)
        losses = nn.functional.cross_entropy(logits[:batch], y[here], reduction="none")
        proxy, guess = proxy_mask(losses, torch.tensor(0.9)), logits.detach().argmax(dim=1)
        game = proxy_margin_discrepancy(
            rival[:batch], guess[:batch], proxy, rival[batch:], guess[batch:], alpha=4.0, first_pair=False
        )
        optimizer.zero_grad()
        (losses.mean() + sum(game.values())).backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (network.eval()(x_target).argmax(dim=1) == y_target).float().mean().item()
    print(
        f"noise found {found.rates.mean():.2f}, {right:.1%} of the trusted labels are right, "
        f"target accuracy {accuracy:.1%}"
    )
    return accuracy


if __name__ == "__main__":
    main()
