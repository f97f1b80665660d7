// One suspect's row, and the dialog that gives it any class.
function describe(suspect) {
  const [decision] = store.made.get(suspect);
  return { keep: 'label kept', relabel: `relabelled to ${store.finalLabel(suspect)}`, drop: 'dropped' }[decision];
}

function makeRow(suspect, place, size) {
  const given = data.names[suspects.given[suspect]];
  const suggested = data.names[suspects.suggested[suspect]];
  const same = given === suggested;
  const chips = [];
  if (suspects.kind[suspect]) chips.push(el('span', { class: 'chip' }, WHY[suspects.kind[suspect]] || suspects.kind[suspect]));
  if (suspects.copy[suspect]) chips.push(el('span', { class: 'chip', title: suspects.copy[suspect] }, 'same as ', name(suspects.copy[suspect]), ', labelled otherwise'));
  const picture = el('div', { class: 'picture' });
  if (suspects.picture[suspect]) picture.append(el('img', { src: suspects.picture[suspect], alt: `Picture of ${suspects.id[suspect]}`, width: 88, height: 88, decoding: 'async', class: data.tiny ? 'small' : null }));
  else picture.append(el('span', { 'aria-hidden': 'true' }, '·'));
  const labels = same
    ? el('p', { class: 'labels' }, el('span', { class: 'suggested' }, name(given)), el('span', { class: 'verdict' }, suspects.unlike[suspect] ? ' resembles no class' : ' label looks right'))
    : el('p', { class: 'labels' }, el('span', { class: 'given' }, name(given)), el('span', { class: 'arrow', 'aria-label': 'looks like' }, ' → '), el('span', { class: 'suggested' }, name(suggested)));
  // Nobody is ever entirely sure.
  const sure = suspects.confidence[suspect] >= 0.995 ? `>${NBSP}99${NBSP}%` : percent(suspects.confidence[suspect]);
  const row = el('article', {
    class: 'row', 'aria-describedby': `why-${suspect}`, 'data-suspect': suspect, 'data-place': place, 'aria-posinset': place + 1, 'aria-setsize': size,
    'aria-label': same ? `${suspects.id[suspect]}, labelled ${given}${suspects.unlike[suspect] ? ', resembles no class' : ''}` : `${suspects.id[suspect]}, labelled ${given}, looks like ${suggested}, ${sure} sure`,
  },
    picture,
    el('div', { class: 'what' }, labels, el('p', { class: 'id', title: suspects.id[suspect] }, name(suspects.id[suspect])), el('p', { class: 'why', id: `why-${suspect}` }, ...chips, el('span', { class: 'state' }))),
    el('div', { class: 'sure' }, el('span', { class: 'figure' }, sure), el('span', { class: 'unit' }, ' sure'), interval(suspects.confidence[suspect], 0, 0, 1)),
    el('div', { class: 'decide', role: 'group', 'aria-label': `Decision on ${suspects.id[suspect]}` },
      ...[['keep', 'Keep'], ['relabel', 'Relabel'], ['drop', 'Drop'], ['choose', 'Other…']].map(([decision, label]) =>
        el('button', { type: 'button', 'data-decision': decision, 'aria-pressed': decision === 'choose' ? null : 'false', 'aria-haspopup': decision === 'choose' ? 'dialog' : null, 'aria-label': { relabel: same ? 'Relabel to a class of your choice' : `Relabel to ${suggested}`, choose: 'Other…, choose a class' }[decision] }, label))));
  showDecision(row, suspect);
  return row;
}

function showDecision(row, suspect) {
  const made = store.made.get(suspect);
  const decision = made ? made[0] : '';
  row.dataset.decided = decision;
  for (const button of row.querySelectorAll('[aria-pressed]')) button.setAttribute('aria-pressed', String(button.dataset.decision === decision));
  row.querySelector('.state').textContent = made ? describe(suspect) : '';
}

const chooser = {
  suspect: -1,

  start() {
    this.dialog = byId('chooser');
    byId('chooser-search').addEventListener('input', () => this.fill());
    byId('chooser-search').addEventListener('keydown', (event) => {
      if (event.key !== 'Enter') return;
      event.preventDefault();
      const first = byId('chooser-list').firstElementChild;
      if (first) first.click();
    });
    this.dialog.addEventListener('close', () => {
      const place = gallery.order.indexOf(this.suspect);
      gallery.goTo(place >= 0 ? place : gallery.active); // it may have left the list, the focus must not
    });
  },

  open(suspect) {
    this.suspect = suspect;
    byId('chooser-about').replaceChildren(name(suspects.id[suspect]));
    byId('chooser-search').value = '';
    this.fill();
    this.dialog.showModal();
    byId('chooser-search').focus();
  },

  fill() {
    const wanted = byId('chooser-search').value.toLowerCase();
    const found = data.names.map((text, k) => [text, k]).filter(([text, k]) => k !== suspects.given[this.suspect] && text.toLowerCase().includes(wanted));
    byId('chooser-list').replaceChildren(...found.slice(0, 200).map(([text, k]) => {
      const button = el('button', { type: 'button', class: 'quiet' }, name(text));
      button.addEventListener('click', () => {
        gallery.settle(this.suspect, 'relabel', k);
        this.dialog.close();
      });
      return button;
    }));
  },
};
