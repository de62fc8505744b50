import { useSession } from '../../api/session.ts';
import { Page } from '../../components/page.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { useText } from '../../i18n/text.ts';
import { AccountSettings } from './account.tsx';
import { settingsRoute } from './routes.ts';
import { DataSettings } from './data.tsx';
import { PersonSettings } from './person.tsx';
import { SecuritySettings } from './security.tsx';
import type { SettingsTexts } from './messages/en.ts';

export default function SettingsPage() {
  const t = useText<SettingsTexts>('settings');
  const { account, me } = useSession();
  const { view } = settingsRoute.useSearch();
  const navigate = settingsRoute.useNavigate();
  const ofAccount = { value: 'account', title: t('account'), content: <AccountSettings /> };
  // What is of the person, and needs rights of theirs, is none of the account that an operator views.
  const isViewing = me.viewing !== null;
  return (
    <Page title={t('title')} narrow>
      <Tabs
        label={t('title')}
        value={isViewing ? 'account' : (view ?? 'you')}
        onChange={(value) =>
          void navigate({ search: { view: value === 'you' ? undefined : value } as never, replace: true })
        }
        tabs={
          isViewing
            ? [ofAccount]
            : [
                { value: 'you', title: t('you'), content: <PersonSettings /> },
                { value: 'security', title: t('security'), content: <SecuritySettings /> },
                ...(account === undefined ? [] : [ofAccount]),
                { value: 'data', title: t('data'), content: <DataSettings /> },
              ]
        }
      />
    </Page>
  );
}
