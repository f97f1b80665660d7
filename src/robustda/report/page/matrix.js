// The transition matrix. Fields of one shade are one path, so that a hundred classes are nine elements, not ten thousand.
const SHADES = 8;
const MOST_FIELDS = 2000; // rows of the table that says the same
const LABELLED = 40; // up to so many classes their names fit beside the map

const matrix = { at: null };

function showMatrix() {
  const size = data.names.length;
  const named = size <= LABELLED;
  const cell = named ? Math.max(15, Math.min(34, Math.floor(420 / size))) : Math.max(5, Math.floor(620 / size));
  const margin = named ? Math.min(150, 14 + 6.3 * Math.max(...data.names.map((text) => [...text].length))) : 4;
  const side = size * cell;
  let most = 0;
  data.transition.forEach((row, k) => row.forEach((share, j) => { if (j !== k) most = Math.max(most, share); }));
  const paths = Array.from({ length: SHADES + 1 }, () => []);
  const diagonal = [];
  data.transition.forEach((row, k) => row.forEach((share, j) => {
    const field = `M${j * cell} ${k * cell}h${cell - 1}v${cell - 1}h${1 - cell}z`;
    if (j === k) diagonal.push([field, share]);
    else if (share >= 0.002) paths[Math.max(1, Math.ceil(SHADES * Math.sqrt(share / most)))].push(field);
  }));
  const fields = svg('g', { transform: `translate(${margin} ${margin})` },
    svg('rect', { x: -0.5, y: -0.5, width: side, height: side, class: 'ground' }));
  paths.forEach((parts, shade) => { if (parts.length) fields.append(svg('path', { d: parts.join(''), class: `shade s${shade}` })); });
  fields.append(svg('path', { d: diagonal.map(([field]) => field).join(''), class: 'diagonal' }));
  const mark = svg('rect', { width: cell + 1, height: cell + 1, class: 'mark', visibility: 'hidden' });
  fields.append(mark);
  const total = side + margin + 2;
  const drawn = svg('svg', { viewBox: `0 0 ${total} ${total}`, width: total, height: total, 'aria-hidden': 'true' }, fields);
  if (named) {
    data.names.forEach((text, k) => {
      const middle = margin + k * cell + cell / 2;
      const shown = [...text].length > 21 ? [...text].slice(0, 20).join('') + '…' : text;
      drawn.append(svg('text', { x: margin - 5, y: middle + 3.5, 'text-anchor': 'end' }, shown));
      drawn.append(svg('text', { transform: `translate(${middle + 3.5} ${margin - 5}) rotate(-90)` }, shown));
    });
  }
  const holder = byId('matrix');
  holder.append(drawn);

  function look(k, j) {
    matrix.at = [k, j];
    mark.setAttribute('x', j * cell - 1);
    mark.setAttribute('y', k * cell - 1);
    mark.setAttribute('visibility', 'visible');
    const share = percent(data.transition[k][j]);
    byId('readout').replaceChildren(...(k === j
      ? [`${share} of what is truly `, name(data.names[k]), ' is labelled so.']
      : [`${share} of what is truly `, name(data.names[k]), ' is labelled ', name(data.names[j]), '.']));
  }
  const point = (event) => {
    const box = drawn.getBoundingClientRect();
    const scale = total / box.width;
    const j = Math.floor(((event.clientX - box.left) * scale - margin) / cell);
    const k = Math.floor(((event.clientY - box.top) * scale - margin) / cell);
    if (j >= 0 && k >= 0 && j < size && k < size && (!matrix.at || matrix.at[0] !== k || matrix.at[1] !== j)) look(k, j);
  };
  drawn.addEventListener('pointermove', point);
  drawn.addEventListener('pointerdown', point); // a finger does not hover
  holder.addEventListener('keydown', (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [k, j] = matrix.at || [0, -step[1]];
    look(Math.max(0, Math.min(size - 1, k + step[0])), Math.max(0, Math.min(size - 1, j + step[1])));
  });
  showConfusions();
}

function showConfusions() {
  const found = [];
  data.transition.forEach((row, k) => row.forEach((share, j) => { if (j !== k && share >= 0.005) found.push([share, k, j]); }));
  found.sort((a, b) => b[0] - a[0]);
  byId('readout').textContent = found.length ? 'Point at a field, or use the arrow keys, to read it.' : 'No class is taken for another.';
  byId('confusions').append(...found.slice(0, 8).map(([share, k, j]) =>
    el('li', null, el('span', { class: 'number' }, percent(share)), ' ', name(data.names[k]), ' labelled ', name(data.names[j]))));
  document.querySelector('.beside h3').hidden = !found.length;
  byId('fields').hidden = !found.length;
  // Made when somebody opens it: a hundred classes may have thousands of fields.
  byId('fields').addEventListener('toggle', () => {
    const body = byId('fields').querySelector('tbody');
    if (body.childElementCount) return;
    body.append(...found.slice(0, MOST_FIELDS).map(([share, k, j]) =>
      el('tr', null, el('th', { scope: 'row' }, name(data.names[k])), el('td', null, name(data.names[j])), el('td', { class: 'number' }, percent(share)))));
  });
}
