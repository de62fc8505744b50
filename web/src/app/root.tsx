import { Outlet } from '@tanstack/react-router';

import { Toasts } from '../components/toast.tsx';
import { OfflineBanner } from './offline.tsx';

export function Root() {
  return (
    <>
      <OfflineBanner />
      <Outlet />
      <Toasts />
    </>
  );
}
