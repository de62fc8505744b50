import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { useGet, useSend } from '../../api/use-api.ts';
import type { Got } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Form, FormButtons, TextField } from '../../components/form.tsx';
import { Panel } from '../../components/page.tsx';
import { formatNumber } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import { useUnwritable } from './change.tsx';
import type { OperatorCatalogueTexts } from './messages/en.ts';
import { ratesIn, TermsFields, type Terms } from './terms.tsx';
import styles from './operator-catalogue.module.css';

const path = '/v1/admin/model_additions';
/** By what has become of it. */
const titles = { running: 'running', added: 'added', failed: 'failed', stopped: 'stopped' } as const;
type Addition = NonNullable<Got<typeof path>['last']>;

/** Asks which model this computer shall run, and for whom. */
export function AddModel({ onClose }: { readonly onClose: () => void }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const [terms, setTerms] = useState<Terms>('draft');
  const add = useSend('post', path, { refreshes: [path] });
  const unwritable = useUnwritable();
  const submit = (form: FormData): void => {
    const id = String(form.get('model')).trim();
    const body = {
      source: String(form.get('source')).trim(),
      ...(id === '' ? {} : { model: id }),
      ...(terms === 'sold' ? { pricing: ratesIn(form) } : terms === 'free' ? { free: true } : {}),
    };
    add.mutate({ body }, { onSuccess: onClose });
  };
  return (
    <Dialog title={t('addAModel')} onClose={onClose}>
      <p>{t('addAModelText')}</p>
      {unwritable !== undefined && <p className={styles['unwritable']}>{unwritable}</p>}
      <Form error={add.error} onSubmit={submit}>
        <TextField
          name="source"
          label={t('source')}
          hint={t('sourceHint')}
          placeholder="hf:Qwen/Qwen3-4B-GGUF:Q4_K_M"
          maxLength={1000}
          autoComplete="off"
          spellCheck={false}
        />
        <TextField name="model" label={t('idHere')} hint={t('idOfFile')} maxLength={128} spellCheck={false} optional />
        <TermsFields value={terms} onChange={setTerms} />
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          <Button type="submit" look="primary" busy={add.isPending} disabled={unwritable !== undefined}>
            {t('addIt')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

/** What has become of the model that was added last. */
export function LastAddition() {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const { data } = useGet(path, undefined, { every: 2_000 });
  const stop = useSend('delete', path, { refreshes: [path] });
  const last = data?.last;
  if (!last) return null;
  return (
    <Panel title={t(titles[last.state], { source: last.source })}>
      <div className={styles['addition']} role="status">
        <What of={last} />
        {last.state === 'running' && (
          <Button busy={stop.isPending} onClick={() => stop.mutate({})}>
            {t('stop')}
          </Button>
        )}
      </div>
    </Panel>
  );
}

function What({ of: { state, progress, model, problem } }: { readonly of: Addition }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  if (model === null)
    return <p className={styles['text']}>{problem ?? (state === 'stopped' ? t('keeps') : progress)}</p>;
  return (
    <p className={styles['text']}>
      <Link to="/operator/catalogue" search={{ model: model.id } as never}>
        {model.id}
      </Link>
      {model.answer !== null && (
        <>
          {': '}
          <q>{model.answer.slice(0, 200)}</q>
        </>
      )}
      {model.tokens_per_second !== null && ` · ${t('perSecond', { n: formatNumber(model.tokens_per_second) })}`}
    </p>
  );
}
