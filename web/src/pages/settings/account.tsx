import { mayManage, mayPay, useSession } from '../../api/session.ts';
import { useGet, useSend } from '../../api/use-api.ts';
import type { Got, SendInput } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Id } from '../../components/code.tsx';
import { FieldRow, Form, FormButtons, Select, TextArea, TextField } from '../../components/form.tsx';
import { Facts, Panel } from '../../components/page.tsx';
import { Loaded, Note } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { useLanguage, useText } from '../../i18n/text.ts';
import { countries, zones } from './choices.ts';
import { useRefreshMe } from './use-me.ts';
import type { SettingsTexts } from './messages/en.ts';

type Account = Got<'/v1/account'>;
type Change = NonNullable<SendInput<'patch', '/v1/account'>['body']>;

const refreshes = ['/v1/account', '/v1/usage', '/v1/costs'];

/** What the account is called, when its days begin, and who gets its invoices. */
export function AccountSettings() {
  const t = useText<SettingsTexts>('settings');
  const { may } = useSession();
  const found = useGet('/v1/account');
  return (
    <Loaded of={found} lines={8}>
      {(account) => (
        <>
          {!may(mayPay) && <Note>{t('askManager')}</Note>}
          <General of={account} />
          <BillingDetails of={account} />
        </>
      )}
    </Loaded>
  );
}

/** Says when it is saved. */
function useChange() {
  const t = useText<SettingsTexts>('settings');
  const change = useSend('patch', '/v1/account', { refreshes });
  const refreshMe = useRefreshMe();
  const save = (body: Change): void =>
    change.mutate(
      { body },
      {
        onSuccess: () => {
          refreshMe();
          toast(t('saved'));
        },
      },
    );
  return { save, isBusy: change.isPending, error: change.error };
}

function General({ of: account }: { readonly of: Account }) {
  const t = useText<SettingsTexts>('settings');
  const { may } = useSession();
  const change = useChange();
  const mayRename = may(mayManage);
  const mayEdit = may(mayPay);
  const submit = (form: FormData): void =>
    change.save({
      ...(mayRename ? { name: String(form.get('name')).trim() } : {}),
      time_zone: String(form.get('time_zone')),
    });
  return (
    <Panel title={t('general')}>
      <Form error={change.error} onSubmit={submit}>
        <FieldRow>
          <TextField
            key={account.name}
            name="name"
            label={t('accountName')}
            defaultValue={account.name}
            maxLength={100}
            disabled={!mayRename}
            autoComplete="off"
          />
          <Select
            key={account.time_zone}
            name="time_zone"
            label={t('zone')}
            hint={t('zoneHint')}
            defaultValue={account.time_zone}
            disabled={!mayEdit}
            options={zones(account.time_zone).map((zone) => ({ value: zone, text: zone.replaceAll('_', ' ') }))}
          />
        </FieldRow>
        <Facts
          facts={[
            [t('accountId'), <Id value={account.id} />],
            ...(account.plan_tier === null ? [] : [[t('plan'), account.plan_tier] as const]),
          ]}
        />
        {mayEdit && (
          <FormButtons>
            <Button type="submit" look="primary" busy={change.isBusy}>
              {t('save')}
            </Button>
          </FormButtons>
        )}
      </Form>
    </Panel>
  );
}

function BillingDetails({ of: { billing } }: { readonly of: Account }) {
  const t = useText<SettingsTexts>('settings');
  const { may } = useSession();
  const language = useLanguage();
  const change = useChange();
  const mayEdit = may(mayPay);
  const submit = (form: FormData): void => {
    const text = (name: string): string | null => String(form.get(name) ?? '').trim() || null;
    const lines = (text('address_lines') ?? '')
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '');
    change.save({
      billing: {
        legal_name: text('legal_name'),
        address_lines: lines.length === 0 ? null : lines,
        country: text('country'),
        tax_id: text('tax_id'),
        tax_status: text('tax_status') as Account['billing']['tax_status'],
        invoice_email: text('invoice_email'),
      },
    });
  };
  const statuses = (['standard', 'reverse_charge', 'exempt'] as const).filter(
    // Only the operator, who has seen the proof, exempts from tax.
    (status) => status !== 'exempt' || billing.tax_status === 'exempt',
  );
  return (
    <Panel title={t('billingDetails')}>
      <Form error={change.error} onSubmit={submit} label={t('billingDetails')}>
        <p>{t('billingText')}</p>
        <FieldRow>
          <TextField
            name="legal_name"
            label={t('legalName')}
            defaultValue={billing.legal_name ?? ''}
            maxLength={100}
            optional
            disabled={!mayEdit}
            autoComplete="organization"
          />
          <TextField
            name="invoice_email"
            label={t('invoiceEmail')}
            type="email"
            defaultValue={billing.invoice_email ?? ''}
            maxLength={254}
            optional
            disabled={!mayEdit}
            autoComplete="off"
          />
        </FieldRow>
        <TextArea
          name="address_lines"
          label={t('addressLines')}
          defaultValue={(billing.address_lines ?? []).join('\n')}
          optional
          disabled={!mayEdit}
          autoComplete="street-address"
        />
        <FieldRow>
          <Select
            key={language}
            name="country"
            label={t('country')}
            defaultValue={billing.country ?? ''}
            disabled={!mayEdit}
            options={[
              { value: '', text: '–' },
              ...countries(language).map(([code, name]) => ({ value: code, text: name })),
            ]}
          />
          <TextField
            name="tax_id"
            label={t('taxId')}
            defaultValue={billing.tax_id ?? ''}
            maxLength={40}
            optional
            disabled={!mayEdit}
            autoComplete="off"
            spellCheck={false}
          />
          <Select
            name="tax_status"
            label={t('taxStatus')}
            defaultValue={billing.tax_status}
            disabled={!mayEdit}
            options={statuses.map((status) => ({ value: status, text: t(status) }))}
          />
        </FieldRow>
        {mayEdit && (
          <FormButtons>
            <Button type="submit" look="primary" busy={change.isBusy}>
              {t('save')}
            </Button>
          </FormButtons>
        )}
      </Form>
    </Panel>
  );
}
