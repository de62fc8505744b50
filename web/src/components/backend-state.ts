import type { AppTexts } from '../app/messages/en.ts';
import type { Got } from '../api/use-api.ts';
import { useText } from '../i18n/text.ts';
import type { Tone } from './badge.tsx';

type Backend = Pick<
  Got<'/v1/admin/backends'>['data'][number],
  'state' | 'ejected' | 'worse' | 'running' | 'max_concurrency' | 'waiting'
>;

/** How a backend does, in a word. */
export function useBackendState(): (backend: Backend) => { readonly text: string; readonly tone: Tone } {
  const t = useText<AppTexts>('app');
  return ({ state, ejected, worse, running, max_concurrency: max, waiting }) => {
    if (state === 'failed') return { text: t('backendFailed'), tone: 'bad' };
    if (state === 'starting') return { text: t('backendLoading'), tone: 'warn' };
    if (state === 'stopped') return { text: t('backendStopped'), tone: 'plain' };
    if (state === 'sleeping') return { text: t('backendSleeping'), tone: 'plain' };
    if (ejected) return { text: t('backendEjected'), tone: 'bad' };
    if (worse !== null) return { text: t('backendWorse'), tone: 'warn' };
    if ((max !== null && running >= max) || (waiting ?? 0) > 0) return { text: t('backendFull'), tone: 'warn' };
    return { text: t('backendReady'), tone: 'good' };
  };
}
