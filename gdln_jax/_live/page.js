// The page around reduced.js: sliders to curves, play and scrub, the set-up in the address.
const live = (() => {
  const POINTS = 181, SECONDS = 8;
  const json = id => JSON.parse(document.getElementById(id).textContent);

  function begin(doc, setup) {
    const model = name => doc.get_model_by_name(name), time = model("clock");
    const panels = ["loss", "modes", ...setup.shares.length ? ["shares"] : []];
    const first = state();
    let reference = null, run = null, playing = null, waiting = false, fromAddress = false;

    // A slider's position and the value that it stands for.
    function of(p) {
      const at = model("p." + p.key).value;
      return p.options.length ? p.options[at] : p.log ? 10 ** at : at;
    }
    function place(p, v) {
      const at = p.options.length ? p.options.indexOf(v) : p.log ? Math.log10(v) : v;
      const slider = model("p." + p.key);
      if (Number.isFinite(at) && at >= slider.start - 1e-9 && at <= slider.end + 1e-9) slider.value = at;
    }
    function state() {
      const values = {};
      setup.parameters.forEach(p => { values[p.key] = of(p); });
      return values;
    }

    // The time at which every loss is within 1 % of its end, and some more.
    function settled(c) {
      const ts = [0, ...Array.from({length: 221}, (_, k) => 10 ** (k / 20 - 2))];
      const {losses} = reduced.solve(c, ts, 1e-5), last = losses[losses.length - 1];
      const open = losses.map(l => l.some((v, i) => v - last[i] > 0.01 * (losses[0][i] - last[i])));
      const T = 1.4 * (ts[open.lastIndexOf(true) + 1] || 10), unit = 10 ** Math.floor(Math.log10(T));
      return unit * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find(v => v * unit >= T);
    }
    const at = values => reduced.coefficients(setup.system, setup.parameters, values);
    const least = settled(at(first));
    function integrated(c, T) {
      const ts = Array.from({length: POINTS}, (_, k) => T * k / (POINTS - 1));
      return {ts, c, T, ...reduced.solve(c, ts)};
    }
    const sums = (r, curve) => r.A.map(A => curve.terms.reduce((a, i) => a + A[i], 0));
    const padded = (values, n) => [...values, ...Array(n - values.length).fill(NaN)];

    function columns(r) {
      const n = r.ts.length, of_loss = {t: r.ts}, modes = {t: r.ts}, shares = {t: r.ts};
      setup.losses.forEach((_, k) => { of_loss["y" + k] = padded(r.losses.map(l => l[k]), n); });
      setup.curves.forEach((curve, k) => { modes["y" + k] = padded(sums(r, curve), n); });
      // S.A over <y^2>: the parts of the target that pathways account for.
      const whole = 2 * r.c.parts.reduce((a, v) => a + v, 0);
      let below = Array(n).fill(0);
      setup.shares.forEach((curve, k) => {
        const part = padded(r.A.map(A => curve.terms.reduce((a, i) => a + r.c.S[i] * A[i], 0)), n);
        shares["low" + k] = below;
        shares["high" + k] = below = below.map((v, i) => v + part[i] / whole);
      });
      return {loss: of_loss, modes, shares};
    }

    const strength = (x, unknowns) => Math.sqrt(unknowns.reduce((a, u) => a + x[u] ** 2, 0));
    function picture(values) {
      return setup.pictures.find(p => Object.entries(p.when).every(([key, v]) => values[key] === v));
    }

    function compute() {
      const values = state();
      const c = at(values), T = Math.max(least, settled(c));
      run = integrated(c, T);
      if (!reference || reference.T !== T) {
        reference = integrated(at(first), T);
        const old = columns(reference);
        for (const name of panels) model("old." + name).data = old[name];
      }
      const found = columns(run);
      for (const name of panels) model("data." + name).data = found[name];
      model("range").end = T;
      const drawn = picture(values);
      model("data.nodes").data = drawn.nodes;
      const widest = Math.max(...setup.pictures.flatMap(p => p.edges.unknowns).map(
        u => Math.max(...reference.x.map(x => strength(x, u)))));
      const {unknowns, ...edges} = drawn.edges;
      run.edges = edges;
      run.widths = x => unknowns.map(u =>
        u.length ? 0.6 + 9 * Math.min(strength(x, u) / widest, 1.6) : 1);
      document.getElementById("status").textContent = run.x.length < POINTS
        ? "The integration stopped early: move the last slider back." : "";
      remember(values);
      draw();
    }

    function draw() {
      const k = Math.round(time.value * (POINTS - 1)), x = run.x[Math.min(k, run.x.length - 1)];
      model("data.edges").data = {...run.edges, width: run.widths(x)};
      for (const name of panels) model("now." + name).location = run.ts[k];
      for (const [name, curves] of [["loss", setup.losses], ["modes", setup.curves]]) {
        const y = curves.map((_, i) => model("data." + name).data["y" + i][k]);
        model("at." + name).data = {t: y.map(() => run.ts[k]), y, colour: curves.map(c => c.colour)};
      }
      document.getElementById("now").textContent = Number(run.ts[k].toPrecision(3));
    }

    // The address holds what differs from the page's own set-up.
    function remember(values) {
      const parts = Object.entries(values).filter(([key, v]) => Math.abs(v / first[key] - 1) > 1e-9)
        .map(([key, v]) => `${encodeURIComponent(key)}=${Number(v.toPrecision(6))}`);
      const hash = parts.length ? "#" + parts.join("&") : "#";
      if (!fromAddress && location.hash !== hash && !(hash === "#" && !location.hash))
        history.replaceState(null, "", hash);
    }
    function recall() {
      const given = new URLSearchParams(location.hash.slice(1));
      fromAddress = true;
      setup.parameters.forEach(p => {
        place(p, given.has(p.key) ? Number(given.get(p.key)) : first[p.key]);
      });
      fromAddress = false;
      compute();
    }

    function changed() {
      if (fromAddress || waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; compute(); });
    }
    function play() {
      if (playing !== null) { cancelAnimationFrame(playing); playing = null; }
      else {
        let before = performance.now();
        if (time.value >= 1) time.value = 0;
        const frame = now => {
          time.value = Math.min(1, time.value + (now - before) / 1000 / SECONDS);
          before = now;
          playing = time.value < 1 ? requestAnimationFrame(frame) : null;
          model("play").label = playing === null ? "Play" : "Pause";
        };
        playing = requestAnimationFrame(frame);
      }
      model("play").label = playing === null ? "Play" : "Pause";
    }
    function reset() {
      history.replaceState(null, "", "#");
      recall();
    }

    addEventListener("hashchange", recall);
    addEventListener("keydown", event => {
      // On a button the space bar already presses it.
      if (event.code !== "Space" || event.composedPath()[0].tagName === "BUTTON") return;
      event.preventDefault();
      play();
    });
    recall();
    return {changed, play, reset, draw, ready: true};
  }

  const nothing = () => {};
  const page = {changed: nothing, play: nothing, reset: nothing, draw: nothing, ready: false};
  page.begin = doc => Object.assign(page, begin(doc, json("gdln-setup")));
  return page;
})();
