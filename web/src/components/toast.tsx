import { useSyncExternalStore } from 'react';

import styles from './toast.module.css';

interface Toast {
  readonly id: number;
  readonly text: string;
}

const shownMs = 5000;
const shownMax = 3;
let toasts: readonly Toast[] = [];
let lastId = 0;
const listeners = new Set<() => void>();

function set(next: readonly Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

/** Says that something was done, for some seconds. What went wrong is said where it was done, and stays. */
export function toast(text: string): void {
  const id = ++lastId;
  set([...toasts.slice(1 - shownMax), { id, text }]);
  setTimeout(() => set(toasts.filter((one) => one.id !== id)), shownMs);
}

/** In the shell, once. */
export function Toasts() {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => toasts,
  );
  return (
    <div className={styles['toasts']} role="status" aria-live="polite">
      {shown.map(({ id, text }) => (
        <div key={id} className={styles['toast']}>
          {text}
        </div>
      ))}
    </div>
  );
}
