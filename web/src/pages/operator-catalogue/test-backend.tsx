import { useEffect } from 'react';

import { useSend } from '../../api/use-api.ts';
import type { Sent } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { FormButtons } from '../../components/form.tsx';
import { ErrorNote } from '../../components/state.tsx';
import { useText } from '../../i18n/text.ts';
import type { OperatorCatalogueTexts } from './messages/en.ts';
import styles from './operator-catalogue.module.css';

type Claim = Sent<'post', '/v1/admin/backends/claims'>['data'][number];

interface Props {
  readonly model: string;
  readonly backend: string;
  readonly onClose: () => void;
}

/** Tests at once whether a server does what the card says, promise by promise. */
export function TestBackend({ model, backend, onClose }: Props) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const test = useSend('post', '/v1/admin/backends/claims');
  const { mutate } = test;
  useEffect(() => mutate({ body: { model, backend } }), [mutate, model, backend]);
  return (
    <Dialog title={t('testOf', { name: backend })} onClose={onClose} wide>
      <p>{t('testText')}</p>
      {test.error !== null && <ErrorNote error={test.error} />}
      <div role="status" aria-label={t('found')}>
        {test.data === undefined ? test.isPending && <p>{t('testing')}</p> : <Claims of={test.data.data} />}
      </div>
      <FormButtons>
        <Button look="primary" busy={test.isPending} onClick={() => mutate({ body: { model, backend } })}>
          {t('testAgain')}
        </Button>
      </FormButtons>
    </Dialog>
  );
}

const shown = { kept: ['good', 'kept'], broken: ['bad', 'broken'], unknown: ['plain', 'unknown'] } as const;

function Claims({ of: claims }: { readonly of: readonly Claim[] }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  if (claims.length === 0) return <p>{t('nothingTested')}</p>;
  return (
    <ul className={styles['switches']}>
      {claims.map(({ claim, what, state, found }) => {
        const [tone, text] = shown[state];
        return (
          <li key={claim}>
            <Badge tone={tone}>{t(text)}</Badge>
            <code>{claim}</code>
            <span lang="en">
              {what}
              {found !== null && `: ${found}`}
            </span>
          </li>
        );
      })}
    </ul>
  );
}
