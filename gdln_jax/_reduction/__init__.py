"""The reduction: the loss in aligned coordinates, its certificate, its dynamics and quotient."""
