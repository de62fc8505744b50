import { useState } from 'react';

import { useSend } from '../../api/use-api.ts';
import type { Sent } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { FieldRow, Form, FormButtons, Select, TextField } from '../../components/form.tsx';
import { Facts } from '../../components/page.tsx';
import { formatNumber } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import { ChangeButtons, Difference, useChange, useUnwritable } from './change.tsx';
import type { Change } from './change.tsx';
import type { OperatorCatalogueTexts } from './messages/en.ts';
import type { Model } from './price-dialog.tsx';
import { ratesIn, TermsFields, type Terms } from './terms.tsx';
import styles from './operator-catalogue.module.css';

type Found = Sent<'post', '/v1/admin/servers/probe'>;

/** What was asked of whom. */
interface Asked {
  readonly url: string;
  readonly api_key?: string;
}

/** Asks a server what it is, then what a model of it does, and makes it a model, or another backend of one. */
export function AddServer({ models, onClose }: { readonly models: readonly Model[]; readonly onClose: () => void }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const ask = useSend('post', '/v1/admin/servers/probe');
  const [asked, setAsked] = useState<Asked>();
  const submit = (form: FormData): void => {
    const key = String(form.get('api_key')).trim();
    const body = { url: String(form.get('url')).trim(), ...(key === '' ? {} : { api_key: key }) };
    ask.mutate({ body }, { onSuccess: ({ url }) => setAsked({ ...body, url }) });
  };
  if (asked !== undefined && ask.data !== undefined)
    return <FoundServer asked={asked} found={ask.data} models={models} onClose={onClose} />;
  return (
    <Dialog title={t('addAServer')} onClose={onClose}>
      <Form error={ask.error} onSubmit={submit}>
        <TextField
          name="url"
          label={t('address')}
          hint={t('addressHint')}
          placeholder="http://10.0.0.5:8000/v1"
          autoComplete="off"
          spellCheck={false}
        />
        <TextField
          name="api_key"
          label={t('apiKey')}
          hint={t('apiKeyHint')}
          type="password"
          autoComplete="off"
          optional
        />
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          <Button type="submit" look="primary" busy={ask.isPending}>
            {t('askServer')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

interface FoundProps {
  readonly asked: Asked;
  readonly found: Found;
  readonly models: readonly Model[];
  readonly onClose: () => void;
}

function FoundServer({ asked, found, models, onClose }: FoundProps) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const [there, setThere] = useState(found.models[0]?.id ?? '');
  const [id, setId] = useState(there);
  const [terms, setTerms] = useState<Terms>('draft');
  const tried = useSend('post', '/v1/admin/servers/probe');
  const change = useChange(onClose);
  const unwritable = useUnwritable();
  const existing = models.find((model) => model.id.toLowerCase() === id.trim().toLowerCase());
  const window = found.models.find((model) => model.id === there)?.context_length;
  const choose = (name: string): void => {
    setThere(name);
    setId(name);
    tried.reset();
    change.forget();
  };
  const tryIt = (): void => tried.mutate({ body: { ...asked, flavor: found.flavor, model: there } });
  const submit = (form: FormData): void => {
    if (tried.data === undefined) tryIt();
    else change.show(changeOf({ asked, found, there, terms, existing, answer: tried.data.answer }, form));
  };
  return (
    <Dialog title={t('addAServer')} onClose={onClose} wide>
      {unwritable !== undefined && <p className={styles['unwritable']}>{unwritable}</p>}
      <Form error={tried.error ?? change.error} onSubmit={submit}>
        <Facts
          facts={[
            [t('address'), <code>{found.url}</code>],
            [t('serverKind'), found.flavor],
          ]}
        />
        {found.models.length > 1 ? (
          <Select
            label={t('modelThere')}
            value={there}
            options={found.models.map((model) => ({ value: model.id, text: model.id }))}
            onChange={({ target: { value } }) => choose(value)}
          />
        ) : (
          <TextField
            label={t('modelThere')}
            value={there}
            readOnly={found.models.length === 1}
            onChange={({ target: { value } }) => choose(value)}
          />
        )}
        {tried.isPending && <p role="status">{t('trying')}</p>}
        {tried.data?.answer && <Answer of={tried.data.answer} />}
        {tried.data !== undefined && (
          <div className={styles['fields']} onChange={change.forget}>
            <FieldRow>
              <TextField
                name="model"
                label={t('idHere')}
                value={id}
                hint={existing === undefined ? undefined : t('joins', { name: existing.display_name })}
                maxLength={128}
                spellCheck={false}
                onChange={({ target: { value } }) => setId(value)}
              />
              {existing === undefined && (
                <TextField
                  key={there}
                  name="context_length"
                  label={t('context')}
                  type="number"
                  min={16}
                  defaultValue={window ?? undefined}
                  hint={t('contextHint')}
                />
              )}
            </FieldRow>
            {existing === undefined && <TermsFields value={terms} onChange={setTerms} withCached />}
          </div>
        )}
        {change.shown !== undefined && <Difference of={change.shown} />}
        <FormButtons>
          <Button onClick={onClose}>{t('cancel')}</Button>
          {tried.data === undefined ? (
            <Button type="submit" look="primary" busy={tried.isPending}>
              {t('tryModel')}
            </Button>
          ) : (
            <ChangeButtons change={change} isWritable={unwritable === undefined} />
          )}
        </FormButtons>
      </Form>
    </Dialog>
  );
}

/** What it did with a short request. */
function Answer({ of }: { readonly of: NonNullable<Found['answer']> }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const can =
    of.kind === 'chat'
      ? [t('chat'), t(of.tools ? 'tools' : 'noTools'), t(of.reasoning ? 'reasoning' : 'noReasoning')].join(', ')
      : of.kind;
  return (
    <section className={styles['effect']} aria-label={t('found')} role="status">
      <Facts
        facts={[
          [t('can'), can],
          ...(of.text === null ? [] : [[t('answer'), <q>{of.text.slice(0, 200)}</q>] as const]),
          ...(of.dimensions === null ? [] : [[t('dimensions'), formatNumber(of.dimensions)] as const]),
          [t('speed'), t('perSecond', { n: formatNumber(of.tokens_per_second) })],
        ]}
      />
    </section>
  );
}

interface Chosen {
  readonly asked: Asked;
  readonly found: Found;
  readonly there: string;
  readonly terms: Terms;
  readonly existing: Model | undefined;
  readonly answer: Found['answer'];
}

function changeOf({ asked, found, there, terms, existing, answer }: Chosen, form: FormData): Change {
  const backend = {
    ...asked,
    flavor: found.flavor,
    model_there: there,
    model: existing?.id ?? String(form.get('model')).trim(),
  };
  if (existing !== undefined) return { add_server: backend };
  const kind = answer?.kind ?? 'chat';
  const capabilities =
    kind === 'chat'
      ? {
          ...(answer?.tools === false ? { tools: false } : {}),
          ...(answer?.reasoning === true ? { reasoning: true } : {}),
        }
      : { [kind]: true };
  return {
    add_server: {
      ...backend,
      capabilities,
      context_length: Number(form.get('context_length')),
      ...(terms === 'draft' ? { draft: true } : { pricing: terms === 'free' ? freeRates : ratesIn(form) }),
    },
  };
}

const freeRates = { input_microcents_per_million: 0, output_microcents_per_million: 0 };
