import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';

import { mayMakeKeys, useSession } from '../../api/session.ts';
import { useGet } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { LinkButton } from '../../components/button.tsx';
import { CodeBlock } from '../../components/code.tsx';
import { useErrorTile } from '../../components/error-tile.tsx';
import { Count, Price, Time } from '../../components/figures.tsx';
import { CheckIcon } from '../../components/icons.tsx';
import { Facts, Page, Panel, Tiles } from '../../components/page.tsx';
import type { Tile } from '../../components/page.tsx';
import { Snippets } from '../../components/snippets.tsx';
import { EmptyState, Loaded } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import { formatMoney } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { modelRoute } from './routes.ts';
import { State } from './model-list.tsx';
import { isConversational } from '../../components/chat-models.ts';
import { microcentsOf } from './model.ts';
import type { Feature, Model } from './model.ts';
import type { ModelTexts } from './messages/en.ts';
import styles from './models.module.css';

type Prices = Row<'/v1/models/prices'>;

export default function ModelPage() {
  const t = useText<ModelTexts>('models');
  const { id } = modelRoute.useParams();
  const models = useGet('/v1/models/cards', undefined, { every: 10_000 });
  const crumb = <Link to="/models">{t('title')}</Link>;
  const model = models.data?.data.find(({ model: one }) => one.toLowerCase() === id.toLowerCase());
  if (model !== undefined) return <Card of={model} crumb={crumb} />;
  return (
    <Page title={models.data === undefined ? t('model') : t('gone')} crumb={crumb}>
      <Loaded of={models} lines={8}>
        {() => (
          <EmptyState title={t('gone')} action={<Link to="/models">{t('title')}</Link>}>
            {t('goneText')}
          </EmptyState>
        )}
      </Loaded>
    </Page>
  );
}

function Card({ of: model, crumb }: { readonly of: Model; readonly crumb: ReactNode }) {
  const t = useText<ModelTexts>('models');
  const prices = useGet('/v1/models/prices').data?.data.find((one) => one.model === model.model);
  const { service } = model.card;
  const errors = useErrorTile({ model: model.model });
  return (
    <Page
      title={model.model}
      crumb={crumb}
      lead={
        <>
          <State of={model} />{' '}
          {model.retires_at !== null && (
            <Badge tone="warn">
              {t('retires')} <Time at={model.retires_at} relative />
            </Badge>
          )}{' '}
          {service.description}
        </>
      }
      actions={
        <>
          <LinkButton to="/requests" search={{ model: model.model } as never}>
            {t('requests')}
          </LinkButton>
          {isConversational(model) && (
            <LinkButton look="primary" to="/playground" search={{ model: model.model } as never}>
              {t('try')}
            </LinkButton>
          )}
        </>
      }
    >
      <Tiles tiles={[...useTiles(model, prices), errors]} />
      {prices !== undefined && prices.upcoming.length > 0 && <Upcoming of={prices} />}
      <Panel title={t('capabilities')} flush>
        <Grid of={model} />
      </Panel>
      <Panel>
        <CardFacts of={model} />
      </Panel>
      <Programs of={model} />
    </Page>
  );
}

/** Prices and lengths. */
function useTiles({ card }: Model, prices: Prices | undefined): readonly Tile[] {
  const t = useText<ModelTexts>('models');
  const { pricing, context_length: context, max_output_tokens: longest } = card.service;
  const own = prices?.now.source === 'account' ? prices : undefined;
  const price = (name: string, cents: number, list: number | undefined): Tile => ({
    name,
    value: <Price microcents={microcentsOf(cents)} />,
    note: list === undefined ? t('perMillion') : t('listPrice', { price: formatMoney(list, { precision: 'exact' }) }),
  });
  return [
    price(t('input'), pricing.input_cents_per_million, own?.list.input_microcents),
    price(t('output'), pricing.output_cents_per_million, own?.list.output_microcents),
    {
      ...price(t('cached'), 0, own?.list.cache_read_microcents),
      value: <Price microcents={pricing.cache_read_microcents_per_million} />,
    },
    { name: t('context'), value: <Count value={context} />, note: t('contextNote') },
    {
      name: t('maxOutput'),
      value: longest === null ? '–' : <Count value={longest} />,
      ...(longest === null ? { note: t('maxOutputNone') } : {}),
    },
  ];
}

function Upcoming({ of: { upcoming } }: { readonly of: Prices }) {
  const t = useText<ModelTexts>('models');
  return (
    <Panel title={t('prices')} flush>
      <DataTable
        label={t('prices')}
        list={wholeList(upcoming)}
        keyOf={({ from }) => String(from)}
        empty={null}
        columns={[
          { head: t('from'), main: true, cell: ({ from }) => <Time at={from} /> },
          { head: t('to'), cell: ({ until }) => (until === null ? '–' : <Time at={until} />) },
          { head: t('input'), number: true, cell: (row) => <Price microcents={row.input_microcents} /> },
          { head: t('output'), number: true, cell: (row) => <Price microcents={row.output_microcents} /> },
          { head: t('cached'), number: true, cell: (row) => <Price microcents={row.cache_read_microcents} /> },
        ]}
      />
    </Panel>
  );
}

/** What each endpoint takes; what the model has nowhere has no row. */
function Grid({ of: { endpoints } }: { readonly of: Model }) {
  const t = useText<ModelTexts>('models');
  const shown = [...new Set(endpoints.flatMap((endpoint): readonly Feature[] => endpoint.features))];
  return (
    <div className={styles['scroll']} tabIndex={0} role="region" aria-label={t('capabilities')}>
      <table className={styles['grid']}>
        <thead>
          <tr>
            <th scope="row">{t('feature')}</th>
            {endpoints.map(({ path }) => (
              <th key={path} scope="col">
                <code>{path}</code>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <GridRow name={t('available')} values={endpoints.map(() => true)} />
          {shown.map((feature) => (
            <GridRow
              key={feature}
              name={t(feature)}
              values={endpoints.map((endpoint) => endpoint.features.includes(feature))}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function GridRow({ name, values }: { readonly name: string; readonly values: readonly boolean[] }) {
  const t = useText<ModelTexts>('models');
  return (
    <tr>
      <th scope="row">{name}</th>
      {values.map((value, column) => (
        <td key={column}>
          {value ? (
            <span className={styles['yes']}>
              <CheckIcon />
              <span className="visually-hidden">{t('yes')}</span>
            </span>
          ) : (
            <span className={styles['no']}>
              <span aria-hidden="true">–</span>
              <span className="visually-hidden">{t('no')}</span>
            </span>
          )}
        </td>
      ))}
    </tr>
  );
}

function CardFacts({ of: { card, sampling, retires_at: retiresAt } }: { readonly of: Model }) {
  const t = useText<ModelTexts>('models');
  const { service } = card;
  const { zdr, reasoning_effort: effort } = service.capabilities;
  const { system, ...values } = (service.defaults ?? {}) as Readonly<Record<string, string | number>>;
  const facts: readonly (readonly [string, ReactNode] | undefined)[] = [
    [t('name'), <bdi>{card.display_name}</bdi>],
    [t('ownedBy'), <bdi>{card.owned_by}</bdi>],
    service.adapter_of === undefined ? undefined : [t('adapterOf'), <code>{service.adapter_of}</code>],
    service.tier === undefined ? undefined : [t('tier'), <bdi>{service.tier}</bdi>],
    retiresAt === null ? undefined : [t('retires'), <Time at={retiresAt} full />],
    effort.efforts.length < 2
      ? undefined
      : [t('efforts'), `${effort.efforts.join(', ')} (${t('defaultEffort', { effort: effort.default })})`],
    [t('sampling'), sampling === 'honor' ? t('samplingApplies') : t('samplingIgnored')],
    Object.keys(values).length === 0
      ? undefined
      : [
          t('defaults'),
          <code>
            {Object.entries(values)
              .map(([name, value]) => `${name} ${value}`)
              .join(' · ')}
          </code>,
        ],
    system === undefined ? undefined : ['system', <div className={styles['system']}>{system}</div>],
    [t('zdr'), zdr.supported ? (zdr.same_capabilities ? t('yes') : t('zdrLess')) : t('no')],
  ];
  return <Facts facts={facts.filter((fact) => fact !== undefined)} />;
}

/** How programs call it, with the model filled in. */
function Programs({ of: model }: { readonly of: Model }) {
  const t = useText<ModelTexts>('models');
  const { may } = useSession();
  return (
    <Panel
      title={t('programs')}
      actions={
        may(mayMakeKeys) && (
          <LinkButton small to="/keys" search={{ create: true } as never}>
            {t('createKey')}
          </LinkButton>
        )
      }
    >
      {isConversational(model) ? (
        <Snippets secret={t('keyPlaceholder')} model={model.model} />
      ) : (
        <TaskCommands of={model} secret={t('keyPlaceholder')} />
      )}
    </Panel>
  );
}

const examples: Readonly<Record<string, object>> = {
  '/v1/embeddings': { input: 'A text to measure' },
  '/v1/rerank': { query: 'a question', documents: ['one text', 'another text'] },
  '/v1/completions': { prompt: 'Once upon a time', max_tokens: 64 },
};

function TaskCommands({ of: { model, endpoints }, secret }: { readonly of: Model; readonly secret: string }) {
  const server = useGet('/v1/server');
  const url = server.data?.inference_url ?? '';
  return (
    <div className={styles['commands']}>
      {endpoints.map(({ path }) => (
        <CodeBlock
          key={path}
          label={path}
          code={`curl ${url}${path} \\
  -H "Authorization: Bearer ${secret}" \\
  -H "Content-Type: application/json" \\
  -d '${JSON.stringify({ model, ...examples[path] })}'`}
        />
      ))}
    </div>
  );
}
