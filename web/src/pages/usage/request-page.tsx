import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';

import type { AppTexts } from '../../app/messages/en.ts';
import { useSession } from '../../api/session.ts';
import { useGet } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Button } from '../../components/button.tsx';
import { Id } from '../../components/code.tsx';
import { CopyButton } from '../../components/copy.tsx';
import { Ending } from '../../components/ending.tsx';
import { Charge, Time } from '../../components/figures.tsx';
import { Facts, Page, Panel, Tiles } from '../../components/page.tsx';
import { ServedModel } from '../../components/served-model.tsx';
import { ErrorNote, Note, Skeleton } from '../../components/state.tsx';
import { DataTable, wholeList } from '../../components/table.tsx';
import { formatMilliseconds, formatNumber } from '../../format/number.ts';
import { useText } from '../../i18n/text.ts';
import { requestRoute } from './routes.ts';
import { Attempts } from './attempts.tsx';
import { Arithmetic, LedgerRows } from './arithmetic.tsx';
import { modelsOf } from './receipt.ts';
import { RefundDialog } from './refund.tsx';
import { RefusedRequest } from './refused.tsx';
import type { Receipt } from './receipt.ts';
import type { UsageTexts } from './messages/en.ts';

export default function RequestPage() {
  const t = useText<UsageTexts>('usage');
  const { id } = requestRoute.useParams();
  const { account, isOperator } = useSession();
  const own = useGet('/v1/generation', { query: { id } }, { enabled: account !== undefined });
  const isElsewhere = account === undefined || own.error?.status === 404;
  // An operator is sent ids of any account.
  const ofServer = useGet('/v1/admin/requests/{id}', { path: { id } }, { enabled: isOperator && isElsewhere });
  const found = isOperator && isElsewhere ? ofServer : own;
  const crumb = <Link to="/requests">{t('requests')}</Link>;
  if (found.error?.status === 404) return <RefusedRequest id={id} crumb={crumb} />;
  if (found.data === undefined)
    return (
      <Page title={t('request')} crumb={crumb}>
        {found.error === null ? (
          <Skeleton lines={8} />
        ) : (
          <ErrorNote error={found.error} onRetry={() => void found.refetch()} />
        )}
      </Page>
    );
  const receipts: readonly AnyReceipt[] = found.data.object === 'list' ? found.data.data : [found.data];
  const [receipt] = receipts;
  if (receipt === undefined || receipts.length > 1) return <Several of={receipts} crumb={crumb} />;
  return <ShownReceipt of={receipt} crumb={crumb} />;
}

/** With its account, where it is not one of the account that is looked at. */
type AnyReceipt = Receipt & { readonly account_id?: string; readonly account_name?: string };

/** Public ids are short, and clients choose theirs: an id may be that of several requests. */
function Several({ of: receipts, crumb }: { readonly of: readonly AnyReceipt[]; readonly crumb: ReactNode }) {
  const t = useText<UsageTexts>('usage');
  return (
    <Page title={t('several', { n: receipts.length })} lead={t('severalText')} crumb={crumb}>
      <Panel flush>
        <DataTable
          label={t('requests')}
          list={wholeList(receipts)}
          keyOf={({ id }) => id}
          empty={null}
          columns={[
            {
              head: t('when'),
              main: true,
              cell: ({ id, ended_at: at }) => (
                <Link to={`/requests/${id}`}>
                  <Time at={at} />
                </Link>
              ),
            },
            ...(receipts.some(({ account_id: id }) => id !== undefined)
              ? [{ head: t('account'), cell: (receipt: AnyReceipt) => <bdi>{receipt.account_name}</bdi> }]
              : []),
            { head: t('model'), cell: (receipt) => <ServedModel of={receipt} /> },
            { head: t('state'), cell: (receipt) => <Ending of={receipt} /> },
            { head: t('ledgerId'), cell: ({ id }) => <code>{id}</code> },
            {
              head: t('charged'),
              number: true,
              cell: ({ total_cost_microcents: cost }) => <Charge microcents={cost} />,
            },
          ]}
        />
      </Panel>
    </Page>
  );
}

function ShownReceipt({ of: receipt, crumb }: { readonly of: AnyReceipt; readonly crumb: ReactNode }) {
  const t = useText<UsageTexts>('usage');
  const { latency_ms: firstMs, generation_time_ms: restMs, tokens_completion: tokens } = receipt;
  const { asked, served } = modelsOf(receipt);
  const speed = restMs !== null && restMs > 0 && tokens > 1 ? ((tokens - 1) * 1000) / restMs : undefined;
  return (
    <Page
      title={t('requestOf', { model: asked })}
      crumb={crumb}
      lead={
        <>
          <Ending of={receipt} />{' '}
          {served !== undefined && served !== asked && (
            <>
              <Badge tone="accent">{t('servedInstead', { model: served })}</Badge>{' '}
            </>
          )}
          <Time at={receipt.ended_at} />
        </>
      }
      actions={
        <>
          <RefundButton of={receipt} />
          <CopyButton wide look="plain" text={receipt.request_id} label={t('copyId')} />
        </>
      }
    >
      {receipt.error_code !== null && <ErrorExplained code={receipt.error_code} error={receipt.error} />}
      {receipt.warnings.length > 0 && <Warnings of={receipt.warnings} />}
      <Tiles
        tiles={[
          {
            name: t('charged'),
            value: <Charge microcents={receipt.total_cost_microcents} />,
            ...(receipt.refunded_microcents === 0
              ? {}
              : {
                  note: (
                    <>
                      {t('refunded')}: <Charge microcents={receipt.refunded_microcents} />
                    </>
                  ),
                }),
          },
          { name: t('held'), value: <Charge microcents={receipt.hold_microcents} />, note: t('heldNote') },
          { name: t('firstToken'), value: firstMs === null ? '–' : formatMilliseconds(firstMs) },
          {
            name: t('duration'),
            value: formatMilliseconds(receipt.total_ms),
            ...(speed === undefined
              ? {}
              : { note: t('speed', { speed: formatNumber(speed, { maximumFractionDigits: 1 }) }) }),
          },
        ]}
      />
      <Panel title={t('charge')}>
        <Arithmetic of={receipt} />
      </Panel>
      <Panel title={t('howItRan')}>
        <RunFacts of={receipt} />
      </Panel>
      {receipt.attempts !== null && (
        <Panel title={t('backends')} flush>
          <Attempts of={receipt.attempts} model={receipt.model} />
        </Panel>
      )}
      <Panel title={t('ledger')} flush>
        <LedgerRows of={receipt} />
      </Panel>
      <p>{t('noContent')}</p>
    </Page>
  );
}

/** For operators, as long as the charge can be refunded. */
function RefundButton({ of: receipt }: { readonly of: AnyReceipt }) {
  const t = useText<UsageTexts>('usage');
  const { account, isOperator } = useSession();
  const [isOpen, setIsOpen] = useState(false);
  const payer = receipt.account_id ?? account?.id;
  if (!isOperator || payer === undefined || receipt.total_cost_microcents === 0 || receipt.refunded_microcents > 0)
    return null;
  return (
    <>
      <Button onClick={() => setIsOpen(true)}>{t('refundRow')}</Button>
      {isOpen && <RefundDialog of={receipt} account={payer} onClose={() => setIsOpen(false)} />}
    </>
  );
}

interface ErrorProps {
  readonly code: string;
  readonly error: Receipt['error'];
}

/** In the words of the page of the code, which is English as all errors of the API are. */
function ErrorExplained({ code, error }: ErrorProps) {
  const t = useText<AppTexts>('app');
  return (
    <Note tone="warn">
      <p>
        <code>{code}</code>
        {error !== null && <> · HTTP {error.status}</>}
      </p>
      {error !== null && (
        <div lang="en">
          <p>{error.meaning}</p>
          <p>
            <strong>{error.remedy}</strong> Retry: {error.retry}.
          </p>
        </div>
      )}
      {error !== null && (
        <a href={`/docs/errors/${code}`} target="_blank" rel="noopener">
          {t('whatItMeans')}
        </a>
      )}
    </Note>
  );
}

/** What was left out of the request, in the words of the header that told the program. */
function Warnings({ of: warnings }: { readonly of: Receipt['warnings'] }) {
  return (
    <Note tone="warn">
      {warnings.map(({ code, meaning }) => (
        <p key={code} lang="en">
          <code>{code}</code> · {meaning}
        </p>
      ))}
    </Note>
  );
}

/** The models that did not serve the request, and why. */
function Fallbacks({ of: fallbacks }: { readonly of: NonNullable<Receipt['fallbacks']> }) {
  const t = useText<UsageTexts>('usage');
  return (
    <>
      {fallbacks.map(({ model, reason, skipped }) => (
        <div key={model}>
          {model}: {skipped && <>{t('notTried')}, </>}
          <a href={`/docs/errors/${reason}`} target="_blank" rel="noopener">
            <code>{reason}</code>
          </a>
        </div>
      ))}
    </>
  );
}

function RunFacts({ of: receipt }: { readonly of: AnyReceipt }) {
  const t = useText<UsageTexts>('usage');
  const { zdr, generation_time_ms: restMs, client_request_id: clientId } = receipt;
  const { account_id: customer, account_name: customerName } = receipt;
  // The lists behind links are those of the account that is looked at.
  const filtered = (search: object, text: ReactNode): ReactNode =>
    customer !== undefined ? (
      text
    ) : (
      <Link to="/requests" search={search as never}>
        {text}
      </Link>
    );
  const linked = (model: string): ReactNode => filtered({ model }, model);
  const { asked, served } = modelsOf(receipt);
  const keyName = <bdi>{receipt.key_name ?? receipt.key_id}</bdi>;
  const key = customer === undefined ? <Link to={`/keys/${receipt.key_id}`}>{keyName}</Link> : keyName;
  const payer = customer !== undefined && (
    <Link to={`/operator/accounts/${customer}`}>
      <bdi>{customerName === '' ? customer : customerName}</bdi>
    </Link>
  );
  return (
    <Facts
      facts={[
        ...(payer === false ? [] : [[t('account'), payer] as const]),
        [t('requestId'), <Id value={receipt.request_id} />],
        ...(clientId === null ? [] : [[t('clientId'), <Id value={clientId} />] as const]),
        [t('ledgerId'), <Id value={receipt.id} />],
        ...(receipt.fallbacks === null
          ? [[t('model'), linked(receipt.model)] as const]
          : [
              [t('askedFor'), linked(asked)] as const,
              [t('servedBy'), served === undefined ? t('noneServed') : linked(served)] as const,
              [t('notServed'), <Fallbacks of={receipt.fallbacks} />] as const,
            ]),
        [t('key'), key],
        [
          t('tags'),
          receipt.tags.length === 0
            ? '–'
            : receipt.tags.map((tag) => <span key={tag}>{filtered({ tag }, <Badge>{tag}</Badge>)} </span>),
        ],
        [t('format'), `${receipt.api_type} · ${receipt.streamed ? t('streamed') : t('whole')}`],
        [t('started'), <Time at={receipt.created_at} full />],
        [t('ended'), <Time at={receipt.ended_at} full />],
        [t('generation'), restMs === null ? '–' : formatMilliseconds(restMs)],
        [t('finishReason'), receipt.finish_reason === null ? '–' : <code>{receipt.finish_reason}</code>],
        [t('backend'), receipt.backend === null ? '–' : <code>{receipt.backend}</code>],
        [t('tier'), tierShown(receipt)],
        ...(receipt.cache_miss === null ? [] : [[t('cacheMiss'), missText(receipt.cache_miss, t)] as const]),
        ...(receipt.queue === null ? [] : [[t('queue'), formatMilliseconds(receipt.queue.wait_ms)] as const]),
        [t('zdr'), zdr === null ? '–' : zdr ? t('yes') : t('no')],
      ]}
    />
  );
}

/** Why so much of the prompt was in no cache, and what its first difference from an earlier one is. */
function missText(
  { reason, differs }: NonNullable<AnyReceipt['cache_miss']>,
  t: ReturnType<typeof useText<UsageTexts>>,
): string {
  const why = reason === 'changed' ? [] : [t(reason === 'evicted' ? 'missEvicted' : 'missElsewhere')];
  if (differs === null) return why.join(' ');
  const { in: role, message } = differs;
  return [...why, message === null ? t('toolsDiffer') : t('messageDiffers', { n: message, role })].join(' ');
}

/** The tier, and what its prices are of the usual ones. */
const tierShown = ({ service_tier: tier, price_multiple: multiple }: AnyReceipt): string =>
  tier === 'default' || multiple === null ? tier : `${tier} × ${formatNumber(multiple, { maximumFractionDigits: 4 })}`;
