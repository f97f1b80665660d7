// The data, and small helpers. Text from the data reaches the page through textContent and attributes only.
const data = JSON.parse(document.getElementById('data').textContent);
const SVG = 'http://www.w3.org/2000/svg';
const NBSP = '\u00a0';

const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children) node.append(child);
  return node;
}

const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const count = (number) => number.toLocaleString('en');

function percent(share) {
  const value = 100 * share;
  return value.toFixed(value > 0 && value < 0.95 ? 1 : 0) + NBSP + '%';
}

// Names may be written from right to left, and must not turn the sentence around them.
const name = (text) => el('bdi', null, text);

function announce(text) {
  byId('status').textContent = text;
}
