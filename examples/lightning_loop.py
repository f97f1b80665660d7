"""RDA inside a LightningModule: a curriculum for some epochs, then adaptation with the labels it trusts.

python examples/lightning_loop.py      (needs `pip install lightning`)
"""

import lightning
import torch
from lightning.pytorch.utilities import CombinedLoader
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from robustda.curriculum import LossLedger, exam, kept_share
from robustda.losses import margin_discrepancy, masked_mean
from robustda.nets import Adversarial, create_backbone


class RobustAdaptation(lightning.LightningModule):
    """Any backbone with an `out_features` would do; here the vectors themselves."""

    def __init__(self, x: Tensor, y: Tensor, n_classes: int, noise_rate: float, curriculum_epochs: int) -> None:
        super().__init__()
        self.x, self.y, self.curriculum_epochs = x, y, curriculum_epochs
        self.keep = kept_share(torch.full((n_classes,), noise_rate))
        self.network = Adversarial(create_backbone("identity", x.shape[1:]), n_classes, width=64)
        self.ledger, self.trust = LossLedger(len(y)), torch.ones(len(y))

    def training_step(self, batch: tuple[list[Tensor], list[Tensor]], _: int) -> Tensor:
        (source, labels, rows), (target,) = batch
        features = self.network.features(torch.cat([source, target]))
        logits = self.network.f(features)
        losses = nn.functional.cross_entropy(logits[: len(source)], labels, reduction="none")
        loss = masked_mean(losses, self.trust[rows])
        if self.current_epoch >= self.curriculum_epochs:
            rival, guess = self.network.adversary_logits(features, 0.1), logits.detach().argmax(dim=1)
            count = len(source)
            game = margin_discrepancy(rival[:count], guess[:count], rival[count:], guess[count:], alpha=4.0)
            loss = loss + game["source_disparity"] + game["target_disparity"]
        return loss

    @torch.no_grad()
    def on_train_epoch_end(self) -> None:
        if self.current_epoch < self.curriculum_epochs:
            self.network.eval()
            self.ledger.add(nn.functional.cross_entropy(self.network(self.x), self.y, reduction="none"))
            self.network.train()
        if self.current_epoch == self.curriculum_epochs - 1:
            self.trust = exam(self.ledger.mean, self.y, self.keep).trust.float()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


def main(epochs: int = 20) -> float:
    lightning.seed_everything(0, verbose=False)
    centres, aside = 1.2 * torch.randn(4, 10), torch.randn(10)
    true, y_target = torch.arange(600) % 4, torch.arange(400) % 4
    x, x_target = centres[true] + torch.randn(600, 10), centres[y_target] + torch.randn(400, 10) + aside
    y = torch.where(torch.rand(600) < 0.3, (true + 1) % 4, true)

    model = RobustAdaptation(x, y, n_classes=4, noise_rate=0.3, curriculum_epochs=epochs // 2)
    loaders = [
        DataLoader(TensorDataset(x, y, torch.arange(600)), batch_size=32, shuffle=True, drop_last=True),
        DataLoader(TensorDataset(x_target), batch_size=32, shuffle=True, drop_last=True),
    ]
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", devices=1, **quiet)
    trainer.fit(model, CombinedLoader(loaders, "max_size_cycle"))
    right = (y == true)[model.trust > 0].float().mean().item()
    accuracy = (model.network.eval()(x_target).argmax(dim=1) == y_target).float().mean().item()
    print(f"{right:.1%} of the trusted labels are right, target accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
