#!/bin/sh
# Write random secrets and the URLs of the database into a folder, for compose.yaml or systemd.
# Existing files stay as they are.
#
#     sh deploy/make-secrets.sh FOLDER DATABASE_HOST[:PORT]
set -eu
command -v openssl > /dev/null || { echo "openssl is not installed." >&2; exit 1; }
umask 077
folder=$1 host=$2
mkdir -p "$folder"
cd "$folder"

# Containers read the files as another user. The folder itself is closed to other users.
write() {
    if [ ! -e "$1" ]; then
        cat > "$1.new"
        chmod 644 "$1.new"
        mv "$1.new" "$1"
    fi
}

for name in postgres-password owner-password app-password; do
    openssl rand -hex 24 | write $name
done
openssl rand -base64 32 | write secret-key
echo "postgresql://einvoice_owner:$(cat owner-password)@$host/einvoice" | write database-owner-url
echo "postgresql://einvoice_app:$(cat app-password)@$host/einvoice" | write database-url
printf '' | write secret-key-previous
printf '' | write portal-client-secret
[ -s portal-client-secret ] || echo "Write the portal's client secret into $folder/portal-client-secret"
