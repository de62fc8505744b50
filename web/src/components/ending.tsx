import type { AppTexts } from '../app/messages/en.ts';
import type { Row } from '../api/use-api.ts';
import { useText } from '../i18n/text.ts';
import { Badge } from './badge.tsx';
import { endings } from './endings.ts';
import type { EndingName } from './endings.ts';

const isKnown = (name: string): name is EndingName => Object.hasOwn(endings, name);

/** Names for the endings; what this console does not know yet has the name that the API gives it. */
export function useEndingName(): (ending: string) => string {
  const t = useText<AppTexts>('app');
  return (ending) => (isKnown(ending) ? t(endings[ending].text) : ending);
}

type Ended = Pick<Row<'/v1/generations'>, 'ending' | 'error_code'>;

/** How a request ended, and the code of its error where it had one. */
export function Ending({ of: { ending, error_code: code } }: { readonly of: Ended }) {
  const nameOf = useEndingName();
  return (
    <span>
      <Badge tone={isKnown(ending) ? endings[ending].tone : 'plain'}>{nameOf(ending)}</Badge>
      {code !== null && (
        <>
          {' '}
          <code>{code}</code>
        </>
      )}
    </span>
  );
}
