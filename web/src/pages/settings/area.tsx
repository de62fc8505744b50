import type { Area } from '../../app/area.ts';
import { lazyPage } from '../../app/lazy-page.ts';
import { SettingsIcon } from '../../components/icons.tsx';
import { settingsRoute } from './routes.ts';

export const area: Area = {
  name: 'settings',
  navigation: [
    {
      to: '/settings',
      label: { en: 'Settings', de: 'Einstellungen', zh: '设置' },
      icon: SettingsIcon,
      group: 'account',
      order: 40,
      actions: [
        { label: { en: 'Change the password', de: 'Passwort ändern', zh: '更改密码' } },
        { label: { en: 'Add a passkey', de: 'Passkey hinzufügen', zh: '添加通行密钥' } },
      ],
    },
  ],
  routes: [settingsRoute.update({ component: lazyPage('settings', () => import('./settings-page.tsx')) })],
};
