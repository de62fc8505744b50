import { useEffect, useState } from 'react';

/** Nobody waits for a letter that comes at once after another one. */
export const pauseMs = 250;

/** What is typed, once the typing pauses. */
export function usePaused(typed: string): string {
  const [paused, setPaused] = useState(typed);
  useEffect(() => {
    const timer = setTimeout(() => setPaused(typed), pauseMs);
    return () => clearTimeout(timer);
  }, [typed]);
  return paused;
}
