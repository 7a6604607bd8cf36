"""Closed forms: learning curves that need no simulation (theory#closed-forms).

All functions broadcast over arrays and can be jitted, vmapped and differentiated in every real
argument; they are finite at t = 0, at t = inf and wherever two formulas meet. Time is in the units
of tau, with the mean loss of theory#conventions: t = tau * learning rate * step. A known tau that
is not finite and above 0 is refused with a ValueError. Imports no other answer (flow, training,
reduction), so that agreement with them is a test. `rnn_minimum` alone is host code.
"""

from gdln_jax._checks import namespace as _namespace
from gdln_jax.exact._attention import attention_merged as attention_merged
from gdln_jax.exact._attention import attention_moments as attention_moments
from gdln_jax.exact._attention import attention_plateaus as attention_plateaus
from gdln_jax.exact._attention import attention_time as attention_time
from gdln_jax.exact._chain import chain_mode as chain_mode
from gdln_jax.exact._chain import chain_mode_time as chain_mode_time
from gdln_jax.exact._chain import chain_sharpness as chain_sharpness
from gdln_jax.exact._chain import decay_fold as decay_fold
from gdln_jax.exact._discrete import adagrad_steps as adagrad_steps
from gdln_jax.exact._discrete import imbalance_factor as imbalance_factor
from gdln_jax.exact._discrete import momentum_clock_error as momentum_clock_error
from gdln_jax.exact._discrete import pathway_race as pathway_race
from gdln_jax.exact._discrete import sign_time as sign_time
from gdln_jax.exact._discrete import two_cycle as two_cycle
from gdln_jax.exact._fusion import fusion_times as fusion_times
from gdln_jax.exact._modes import context_mode as context_mode
from gdln_jax.exact._modes import linear_mode as linear_mode
from gdln_jax.exact._modes import linear_mode_time as linear_mode_time
from gdln_jax.exact._modes import unbalanced_mode as unbalanced_mode
from gdln_jax.exact._modes import unbalanced_mode_time as unbalanced_mode_time
from gdln_jax.exact._recurrence import rnn_loss as rnn_loss
from gdln_jax.exact._recurrence import rnn_minimum as rnn_minimum
from gdln_jax.exact._routing import SharingMode as SharingMode
from gdln_jax.exact._routing import routing_loss as routing_loss
from gdln_jax.exact._routing import routing_mode as routing_mode
from gdln_jax.exact._routing import routing_time as routing_time
from gdln_jax.exact._routing import sharing_mode as sharing_mode
from gdln_jax.exact._tied import autoencoder_mode as autoencoder_mode
from gdln_jax.exact._tied import autoencoder_white as autoencoder_white
from gdln_jax.exact._tied import ssl_mode as ssl_mode
from gdln_jax.exact._tied import ssl_white as ssl_white
from gdln_jax.exact._two_layer import two_layer_flow as two_layer_flow
from gdln_jax.exact._two_layer_sequence import two_layer_sequence as two_layer_sequence
from gdln_jax.exact._unbalanced import chain_blow_up as chain_blow_up
from gdln_jax.exact._unbalanced import chain_time as chain_time
from gdln_jax.exact._xor import margin_crossover as margin_crossover
from gdln_jax.exact._xor import margin_loss as margin_loss
from gdln_jax.exact._xor import margin_time as margin_time
from gdln_jax.exact._xor import xor_loss as xor_loss

__getattr__, __dir__ = _namespace(__name__)
