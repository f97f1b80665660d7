// The headline, and what can be seen at a glance.
const FEW_CLASSES = 14;

function showHeadline() {
  const [first, ...more] = data.headline;
  document.title = `Audit of ${data.source}`;
  byId('source').textContent = data.source;
  byId('headline').textContent = first;
  byId('sentences').append(...more.map((text) => el('li', null, text)));
  byId('version').textContent = data.version;
  const issues = data.suspects.issue.filter(Boolean).length;
  const facts = [
    [count(data.examples), data.kind === 'images' ? 'images' : 'examples'],
    [count(data.names.length), 'classes'],
    [count(issues), issues === 1 ? 'label looks wrong' : 'labels look wrong'],
  ];
  const others = data.suspects.id.length + data.left_out - issues;
  if (others) facts.push([count(others), 'others to look at']);
  byId('facts').append(...facts.map(([value, what]) => el('div', null, el('dt', null, what), el('dd', null, value))));
}

// A bar with its interval, or a dot with it; the text beside it says the same.
function interval(rate, low, high, most, dot) {
  const at = (share) => (100 * Math.min(share, most) / most).toFixed(2);
  const drawn = svg('svg', { viewBox: '0 0 100 12', preserveAspectRatio: 'none', 'aria-hidden': 'true', class: 'interval' });
  if (!dot) drawn.append(svg('rect', { x: 0, y: 2, width: at(rate), height: 8, class: 'rate' }));
  drawn.append(svg('line', { x1: at(low), x2: at(high), y1: 6, y2: 6, class: 'whisker' }));
  if (dot) drawn.append(svg('line', { x1: at(rate), x2: at(rate), y1: 2, y2: 10, class: 'point' }));
  else for (const end of [low, high]) drawn.append(svg('line', { x1: at(end), x2: at(end), y1: 4, y2: 8, class: 'whisker' }));
  return drawn;
}

const between = (low, high) => `${percent(low).replace(NBSP + '%', '')}–${percent(high)}`;

function showClasses() {
  const order = data.names.map((_, k) => k).sort((a, b) => data.classes[b][1] - data.classes[a][1] || a - b);
  const most = Math.min(1, Math.ceil(10 * Math.max(0.05, ...data.classes.map((row) => row[3]))) / 10);
  byId('axis-high').textContent = percent(most);
  const rows = order.map((k, place) => {
    const [examples, rate, low, high, pooled] = data.classes[k];
    const button = el('button', { type: 'button', class: 'link', title: data.names[k] }, name(data.names[k]));
    button.addEventListener('click', () => gallery.showClass(k));
    return el('tr', { hidden: place >= FEW_CLASSES && order.length > FEW_CLASSES + 3 },
      el('th', { scope: 'row' }, button),
      el('td', { class: 'chart' }, interval(rate, low, high, most)),
      el('td', { class: 'number' }, percent(rate), ' ', el('span', { class: 'range' }, between(low, high) + (pooled ? ', pooled' : ''))),
      el('td', { class: 'number of' }, count(examples)));
  });
  document.querySelector('#classes tbody').append(...rows);
  const hidden = rows.filter((row) => row.hidden);
  const toggle = byId('all-classes');
  if (!hidden.length) return;
  const label = () => (hidden[0].hidden ? `Show all ${data.names.length} classes` : 'Show the worst only');
  toggle.hidden = false;
  toggle.textContent = label();
  toggle.addEventListener('click', () => {
    for (const row of hidden) row.hidden = !row.hidden;
    toggle.textContent = label();
    toggle.setAttribute('aria-expanded', String(!hidden[0].hidden));
  });
}

function showHistogram() {
  const width = 400, height = 132, base = 112, bins = data.histogram.length;
  const highest = Math.max(1, ...data.histogram);
  const wrong = data.histogram.slice(bins / 2).reduce((sum, n) => sum + n, 0);
  const drawn = svg('svg', {
    viewBox: `0 0 ${width} ${height}`, role: 'img',
    'aria-label': `${count(data.examples - wrong)} labels are more likely right, ${count(wrong)} more likely wrong.`,
  });
  data.histogram.forEach((n, i) => {
    const tall = n ? Math.max(1.5, 92 * Math.sqrt(n / highest)) : 0;
    const bar = svg('rect', { x: i * width / bins + 0.75, y: base - tall, width: width / bins - 1.5, height: tall, class: i < bins / 2 ? 'right' : 'wrong' });
    bar.append(svg('title', null, `${count(n)} ${n === 1 ? 'example' : 'examples'} from ${percent(i / bins)} to ${percent((i + 1) / bins)}`));
    drawn.append(bar);
  });
  drawn.append(svg('line', { x1: 0, x2: width, y1: base + 0.5, y2: base + 0.5, class: 'axis-line' }));
  drawn.append(svg('line', { x1: width / 2, x2: width / 2, y1: 4, y2: base, class: 'threshold' }));
  drawn.append(svg('text', { x: width / 2 - 8, y: 13, 'text-anchor': 'end' }, `${count(data.examples - wrong)} look right`));
  drawn.append(svg('text', { x: width / 2 + 8, y: 13, class: 'wrong' }, `${count(wrong)} look wrong`));
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const anchor = share === 0 ? 'start' : share === 1 ? 'end' : 'middle';
    drawn.append(svg('text', { x: share * width, y: base + 16, 'text-anchor': anchor, class: 'tick' }, percent(share)));
  }
  byId('histogram').append(drawn);
}

// Losses of labels that look right, and on top of them those of labels that look wrong.
function showLosses() {
  const { right, wrong, most, threshold } = data.losses;
  const width = 400, height = 132, base = 112, bins = right.length;
  const highest = Math.max(1, ...right.map((n, i) => n + wrong[i]));
  const beyond = threshold === null ? 0 : Math.min(threshold / most, 1);
  const beyondBin = Math.floor(beyond * bins);
  const sum = (numbers) => numbers.reduce((all, n) => all + n, 0);
  byId('loss-note').textContent = 'All examples by the loss of their label, −log of its probability by others, cut at 1' + NBSP + '%. The paler ones look right, the stronger ones wrong, by all evidence together. '
    + (threshold === null ? 'A mixture of two kinds finds no second hump.' : 'Beyond the line, a mixture of two kinds takes them for large losses: a cruder rule, that has only this to go by.');
  const drawn = svg('svg', {
    viewBox: `0 0 ${width} ${height}`, role: 'img',
    'aria-label': threshold === null ? `Losses from 0 to ${most.toFixed(1)}, with no threshold.`
      : `Losses from 0 to ${most.toFixed(1)}; ${count(sum(right.slice(beyondBin)) + sum(wrong.slice(beyondBin)))} examples lie beyond the threshold of the mixture, ${threshold.toFixed(2)}; ${count(sum(wrong))} look wrong by all evidence.`,
  });
  right.forEach((n, i) => {
    const all = n + wrong[i];
    if (!all) return;
    const tall = Math.max(1.5, 92 * Math.sqrt(all / highest));
    const part = tall * wrong[i] / all;
    const place = { x: i * width / bins + 0.75, width: width / bins - 1.5 };
    const title = `${count(n)} look right and ${count(wrong[i])} wrong, from ${(i * most / bins).toFixed(2)} to ${((i + 1) * most / bins).toFixed(2)}`;
    if (n) drawn.append(svg('rect', { ...place, y: base - tall + part, height: tall - part, class: 'right' }, svg('title', null, title)));
    if (wrong[i]) drawn.append(svg('rect', { ...place, y: base - tall, height: part, class: 'wrong' }, svg('title', null, title)));
  });
  drawn.append(svg('line', { x1: 0, x2: width, y1: base + 0.5, y2: base + 0.5, class: 'axis-line' }));
  if (threshold !== null) drawn.append(svg('line', { x1: beyond * width, x2: beyond * width, y1: 4, y2: base, class: 'threshold' }));
  for (let loss = 0; loss < most; loss += 1) {
    drawn.append(svg('text', { x: loss / most * width, y: base + 16, 'text-anchor': loss ? 'middle' : 'start', class: 'tick' }, String(loss)));
  }
  byId('losses').append(drawn);
}

const ESTIMATORS = {
  combined: 'Used here', confident: 'Confident joint', likelihood: 'Likelihood fit', anchor: 'Anchor points', mixture: 'Mixture of losses',
};

function showEstimates() {
  const most = Math.min(1, Math.ceil(10 * Math.max(0.05, ...data.estimates.map((row) => row[3]))) / 10);
  const far = data.disagreement > 0.05;
  byId('agreement').textContent = `The rate is the mean of the confident joint and the likelihood fit, which are ${percent(data.disagreement)} apart${far ? ': too far to rely on either' : ''}. The other two are shown for comparison; they err more.`;
  document.querySelector('#estimates tbody').append(...data.estimates.map(([which, rate, low, high]) =>
    el('tr', { class: which === 'combined' ? 'main' : null },
      el('th', { scope: 'row' }, ESTIMATORS[which] || which),
      el('td', { class: 'chart' }, interval(rate, low, high, most, true)),
      el('td', { class: 'number' }, percent(rate), ' ', el('span', { class: 'range' }, between(low, high))))));
}

const TERMS = { risk: 'Mistakes at home', discrepancy: 'Discrepancy', proxy: 'Sound examples' };

// A name, a dot with its interval, the figure; and below, what it means.
function measure(title, [value, low, high], meaning) {
  const head = el('tr', null,
    el('th', { scope: 'row' }, title),
    el('td', { class: 'chart' }, interval(value, low, high, 1, true)),
    el('td', { class: 'number' }, percent(value), ' ', el('span', { class: 'range' }, between(low, high))));
  return meaning ? [head, el('tr', { class: 'meaning' }, el('td', { colspan: 3 }, meaning))] : [head];
}

function showTransfer() {
  if (!data.transfer) return;
  const { distance: [distance, low, high], accuracy: [adapted, plain], terms } = data.transfer;
  byId('transfer').hidden = false;
  byId('target').textContent = data.transfer.target;
  document.querySelector('#accuracy tbody').append(...measure('Adapted to it', adapted), ...measure('Source alone', plain));
  byId('gauge').append(interval(distance / 2, low / 2, high / 2, 1), el('span', null, `${distance.toFixed(2)} of 2`));
  const missing = data.transfer.missing.map((k) => data.names[k]);
  byId('missing').textContent = missing.length ? `Classes that seem to be missing there: ${missing.join(', ')}.` : 'No class seems to be missing there.';
  document.querySelector('#terms tbody').append(...terms.rows.flatMap(([which, value, least, most, said]) => measure(TERMS[which] || which, [value, least, most], said)));
  document.querySelector('#more tbody').append(...terms.bound.map(([complexity, chance], i) => el('tr', null,
    el('th', { scope: 'row' }, ['as now', 'twice', '4 times', '10 times'][i]),
    ...[chance.toFixed(2), complexity.toFixed(1), percent((chance + complexity) / (terms.bound[0][0] + terms.bound[0][1]))].map((text) => el('td', { class: 'number' }, text)))));
  byId('more-note').textContent = `The terms of the paper’s bound on how far these figures may be off. As numbers they are larger than anything can be off, as such bounds are; how they fall is what counts. ${terms.sentence}`;
}
