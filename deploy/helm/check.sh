#!/usr/bin/env bash
# check.sh [--update]: renders the chart with each file of values/ and compares with rendered/, or writes that. HELM=
# names another helm. Then a program reads each manifest as the types of Kubernetes, and refuses unknown fields.
set -euo pipefail

cd "$(dirname "$0")"
helm=${HELM:-helm}
rendered=$(mktemp -d)
trap 'rm -rf "$rendered"' EXIT
for values in values/*.yaml; do
    file=$(basename "$values")
    "$helm" lint --quiet --strict --values "$values" millrace
    # What it renders must not depend on the version that this helm was built for.
    "$helm" template millrace millrace --namespace shop --kube-version 1.31.0 --values "$values" >"$rendered/$file"
done
# Tests without helm see by it that somebody forgot to come here.
find millrace values -type f | LC_ALL=C sort | xargs sha256sum >"$rendered/sources.sha256"
if [ "${1:-}" = --update ]; then
    rm -rf rendered
    mkdir rendered
    cp "$rendered"/* rendered/
fi
diff -r rendered "$rendered" || {
    echo "deploy/helm/rendered is not what the chart renders: deploy/helm/check.sh --update" >&2
    exit 1
}
(cd types && go run . ../rendered/*.yaml)
