import { useEffect } from 'react';

/** What is pressed in a field is text. */
const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && target.closest('input, textarea, select, [contenteditable]') !== null;

interface Shortcuts {
  readonly openPalette: () => void;
  readonly openHelp: () => void;
}

/** ⌘K everywhere; `/`, `j`, `k`, Enter and `?` where no field and no dialog has the focus. */
export function useShortcuts({ openPalette, openHelp }: Shortcuts): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault();
        openPalette();
        return;
      }
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target)) return;
      if (document.querySelector('dialog[open]') !== null) return;
      if (event.key === '/') {
        const filter = document.querySelector<HTMLElement>(
          'main [data-filter] input, main [data-filter] select, main input[type=search]',
        );
        if (filter === null) openPalette();
        else filter.focus();
        event.preventDefault();
      } else if (event.key === '?') openHelp();
      else if (event.key === 'j') walk(1);
      else if (event.key === 'k') walk(-1);
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [openPalette, openHelp]);
}

/** The focus goes to the first link or button of the next row: Enter then opens it, as everywhere. */
function walk(step: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>('main [data-row]')];
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  next?.querySelector<HTMLElement>('a, button')?.focus();
  next?.scrollIntoView({ block: 'nearest' });
}
