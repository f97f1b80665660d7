// Keys, then everything in its order.
const KEYS = { 1: 'keep', 2: 'relabel', 3: 'drop', 4: 'choose' };

function onKey(event) {
  const typing = event.target.closest && event.target.closest('input:not([type=checkbox]), select, textarea, dialog');
  if (!byId('shortcuts').checked || typing || event.ctrlKey || event.metaKey || event.altKey || !total) return;
  const { key } = event;
  if (key === 'j' || key === 'k') gallery.goTo(gallery.active < 0 ? 0 : gallery.active + (key === 'j' ? 1 : -1));
  else if ((key === 'PageDown' || key === 'PageUp') && byId('list').contains(event.target)) gallery.goTo(gallery.active + (key === 'PageDown' ? 1 : -1));
  else if (key === 'u') gallery.undo();
  else if (key === '/') byId('search').focus();
  else if (key in KEYS && gallery.order.length) {
    const place = Math.max(0, gallery.active);
    const suspect = gallery.order[place];
    // On to the next one, unless the decision took this one out of the list, or was taken back.
    if (gallery.decide(suspect, KEYS[key])) gallery.goTo(gallery.order[place] === suspect && store.made.has(suspect) ? place + 1 : place);
  } else return;
  event.preventDefault();
}

store.load();
document.body.classList.toggle('no-pictures', !data.suspects.picture.length);
showHeadline();
showClasses();
showHistogram();
showLosses();
showEstimates();
showTransfer();
showMatrix();
chooser.start();
gallery.start();
document.addEventListener('keydown', onKey);
