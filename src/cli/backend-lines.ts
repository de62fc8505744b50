import type { BackendLook } from '../config/backend-look.ts';

/** Lines with the state of a backend's server, and what to do. */
export function lookLines({ model, backend, url, state, problem }: BackendLook): readonly string[] {
  const name = `model    ${model} · ${backend} · ${new URL(url).origin}`;
  switch (state) {
    case 'ready':
      return [`${name} · ready`];
    case 'wrong':
      return [`${name} · answers, but does not match the configuration`, ...whyLines(problem)];
    case 'down':
      return [`${name} · not available now`, ...whyLines(problem)];
  }
}

const whyLines = (problem: string | null): readonly string[] => [
  `  why     ${problem ?? ''}`,
  '  repair  npx tokenhouse doctor',
];
