// The reduced dynamics x' = -rate dl/dx of a polynomial loss l = l0 - S.A + A.D.A/2, where each
// A_i is a product of powers of unknowns x. `coefficients` applies parameters, `solve` integrates by
// RODAS (order 4(3), L-stable; Hairer and Wanner, Solving ODEs II, 2nd edition, IV.7): plateaus cost a
// step per e-fold of growth, stiff ends none. Nothing here knows of pages; tests run it under node.
const reduced = (() => {
  // Every parameter multiplies entries of one array by ((plus + v^power) / (plus + base^power))^to.
  function coefficients(system, parameters, values) {
    const at = {...system};
    for (const name of ["S", "D", "parts", "rates", "x0", "powers"]) at[name] = system[name].slice();
    for (const p of parameters) for (const e of p.effects) {
      const of = v => e.plus + Math.pow(v, e.power);
      const factor = Math.pow(of(values[p.key]) / of(p.base), e.to);
      for (const k of e.at) at[e.on][k] *= factor;
    }
    // Factors of each term: [unknown, power].
    at.factors = system.S.map(() => []);
    system.term.forEach((t, k) => at.factors[t].push([system.unknown[k], at.powers[k]]));
    return at;
  }

  const power = (x, e) => e === 0 ? 1 : e === 1 ? x : e === 2 ? x * x : Math.pow(x, e);
  const product = (factors, x) => factors.reduce((a, [u, e]) => a * power(x[u], e), 1);
  const products = (c, x) => c.factors.map(f => product(f, x));

  // S - D A, the error that each term sees.
  function errors(c, A) {
    const r = c.S.slice();
    for (let k = 0; k < c.D.length; k++) {
      const i = c.row[k], j = c.column[k], v = c.D[k];
      r[i] -= v * A[j];
      if (i !== j) r[j] -= v * A[i];
    }
    return r;
  }

  function losses(c, A) {
    const r = errors(c, A), l = new Array(c.losses).fill(0);
    c.parts.forEach((v, k) => { l[c.part_loss[k]] += v; });
    A.forEach((a, i) => { l[c.term_loss[i]] -= a * (c.S[i] + r[i]) / 2; });
    return l;
  }

  // Derivative of a term in its factors, and second derivatives [f, g, value] if asked for.
  function slopes(factors, x, second) {
    const but = (f, g) => factors.reduce((a, [u, e], k) => k === f || k === g ? a : a * power(x[u], e), 1);
    const own = factors.map(([u, e]) => e * power(x[u], e - 1));
    const first = factors.map((_, f) => own[f] * but(f, f)), twice = [];
    if (second) for (let f = 0; f < factors.length; f++) {
      const [u, e] = factors[f];
      if (e !== 1) twice.push([f, f, e * (e - 1) * power(x[u], e - 2) * but(f, f)]);
      for (let g = 0; g < f; g++) twice.push([f, g, own[f] * own[g] * but(f, g)]);
    }
    return {first, twice};
  }

  function velocity(c, x) {
    const r = errors(c, products(c, x)), v = new Float64Array(x.length);
    c.factors.forEach((factors, i) => slopes(factors, x).first.forEach((s, f) => {
      v[factors[f][0]] += c.rates[factors[f][0]] * r[i] * s;
    }));
    return v;
  }

  // Rows of the matrix of -d velocity/dx.
  function jacobian(c, x) {
    const n = x.length, r = errors(c, products(c, x));
    const H = Array.from({length: n}, () => new Float64Array(n));
    const add = (u, w, v) => { H[u][w] += v; };
    const all = c.factors.map(f => slopes(f, x, true));
    c.factors.forEach((factors, i) => all[i].twice.forEach(([f, g, v]) => {
      add(factors[f][0], factors[g][0], -r[i] * v);
      if (f !== g) add(factors[g][0], factors[f][0], -r[i] * v);
    }));
    c.D.forEach((v, k) => {
      const i = c.row[k], j = c.column[k];
      c.factors[i].forEach(([u], f) => c.factors[j].forEach(([w], g) => {
        const both = v * all[i].first[f] * all[j].first[g];
        add(u, w, both);
        if (i !== j) add(w, u, both);
      }));
    });
    H.forEach((line, u) => { for (let w = 0; w < n; w++) line[w] *= c.rates[u]; });
    return H;
  }

  // LU with pivots, in place; returns the solver of M y = b.
  function factorised(M) {
    const n = M.length, order = M.map((_, k) => k);
    for (let k = 0; k < n; k++) {
      let best = k;
      for (let i = k + 1; i < n; i++) if (Math.abs(M[i][k]) > Math.abs(M[best][k])) best = i;
      [M[k], M[best]] = [M[best], M[k]];
      [order[k], order[best]] = [order[best], order[k]];
      for (let i = k + 1; i < n; i++) {
        const m = M[i][k] /= M[k][k];
        if (m !== 0) for (let j = k + 1; j < n; j++) M[i][j] -= m * M[k][j];
      }
    }
    return b => {
      const y = Float64Array.from(order, k => b[k]);
      for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) y[i] -= M[i][j] * y[j];
      for (let i = n - 1; i >= 0; i--) {
        for (let j = i + 1; j < n; j++) y[i] -= M[i][j] * y[j];
        y[i] /= M[i][i];
      }
      return y;
    };
  }

  const GAMMA = 0.25;
  const POINTS = [[], [1.544], [0.9466785280815826, 0.2557011698983284],
    [3.314825187068521, 2.896124015972201, 0.9986419139977817],
    [1.221224509226641, 6.019134481288629, 12.53708332932087, -0.687886036105895]];
  const SLOPES = [[], [-5.6688], [-2.430093356833875, -0.2063599157091915],
    [-0.1073529058151375, -9.594562251023355, -20.47028614809616],
    [7.496443313967647, -10.24680431464352, -33.99990352819905, 11.7089089320616],
    [8.083246795921522, -7.981132988064893, -31.52159432874371, 16.31930543123136,
      -6.058818238834054]];

  // One step of length h: the new point and the estimate of its error.
  function step(c, x, H, h) {
    const n = x.length, M = H.map(line => Float64Array.from(line)), k = [];
    for (let i = 0; i < n; i++) M[i][i] += 1 / (GAMMA * h);
    const solved = factorised(M);
    let y = x;
    for (let s = 0; s < 6; s++) {
      // The last stages start from y + k of the one before.
      y = s < 5 ? x.map((v, u) => POINTS[s].reduce((a, w, j) => a + w * k[j][u], v))
        : y.map((v, u) => v + k[4][u]);
      const b = velocity(c, y);
      SLOPES[s].forEach((w, j) => { for (let u = 0; u < n; u++) b[u] += w * k[j][u] / h; });
      k.push(solved(b));
    }
    return [y.map((v, u) => v + k[5][u]), k[5]];
  }

  // Values at the times `ts`, from ts[0] on: lists over times of x, A and losses. They end early
  // where the step falls below rounding.
  function solve(c, ts, rtol = 5e-8) {
    let x = Float64Array.from(c.x0), t = ts[0], h = (ts[1] - t) / 10, steps = 0;
    const atol = 1e-3 * rtol * Math.min(1, ...c.x0.filter(v => v !== 0).map(Math.abs));
    const xs = [x];
    let H = jacobian(c, x);
    for (const end of ts.slice(1)) {
      while (t < end) {
        const tried = Math.min(h, end - t), [y, e] = step(c, x, H, tried);
        const relative = e.map((v, u) => v / (atol + rtol * Math.max(Math.abs(x[u]), Math.abs(y[u]))));
        const error = Math.sqrt(relative.reduce((a, v) => a + v * v, 0) / x.length);
        const grow = Number.isFinite(error) ? Math.min(5, Math.max(0.2, 0.9 * error ** -0.25)) : 0.1;
        if (error <= 1) {
          t = tried < h ? end : t + tried;
          x = y;
          H = jacobian(c, x);
          h = Math.max(tried * grow, tried < h ? h : 0);
        } else h = tried * grow;
        if (++steps > 50000 || t + h / 1e3 === t) return looked(c, xs, steps);
      }
      xs.push(x);
    }
    return looked(c, xs, steps);
  }

  function looked(c, xs, steps) {
    const A = xs.map(x => products(c, x));
    return {x: xs, A, losses: A.map(a => losses(c, a)), steps};
  }

  return {coefficients, solve, products, losses};
})();
if (typeof module !== "undefined") module.exports = reduced;
